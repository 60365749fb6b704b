"""Which tests a change can reach: `make affected`, for use between two runs of `make test`.

`reading` says what one Python file imports, names and asks for; `graph` draws the repository from it; `choosing` goes
from the changed files to the tests. Nothing here imports or runs the product.
"""
