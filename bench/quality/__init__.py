"""What `search_quality.py` measures with: tables of results, curves of models, workers on a simulated clock."""
