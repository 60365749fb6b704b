"""Checkpoints: their manifests checked before a commit, their files read without following links, archives.

Which checkpoint a trial resumes from is decided in `lifecycle`.
"""
