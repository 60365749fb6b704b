"""Where tasks run: carry out Launch and Kill, report back."""
