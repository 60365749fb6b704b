"""MLflow's REST protocol, as its clients of the versions 2 and 3 speak it, over the services of runs and of models.

Its messages and errors are here and nowhere else; a browser's session opens nothing of it.
"""
