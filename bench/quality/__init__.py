"""What `search_quality.py` measures with: public tables of results, and workers on a simulated clock."""
