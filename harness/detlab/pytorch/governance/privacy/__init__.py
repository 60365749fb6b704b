"""What the level `dp` needs beside clipping and noise: the accountant, and data that is drawn by chance."""
