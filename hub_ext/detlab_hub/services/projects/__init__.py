"""What teams order their work by: workspaces, their members, projects, and moves of experiments between them.

Not here: who may do what (core/rights, services/base/access), and where a submission goes (services/admission).
"""
