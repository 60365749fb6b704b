"""`det model`: the model registry.

`model` makes the group and what is about models, `versions` what is about their versions, `printing` shows both.
"""
