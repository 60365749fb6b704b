"""Commands about what is stored and for how long: what an experiment keeps, the trash, bookmarks, who uses how much.

Never here: reading what is in a checkpoint, which is `detlab.storage`'s and the client's.
"""
