"""Nothing but its place: pytest finds the helper modules of this folder for tests in its subfolders, too."""
