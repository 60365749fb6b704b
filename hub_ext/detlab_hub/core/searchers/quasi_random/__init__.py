"""Methods whose points fill the space evenly, without looking at results: `sobol`. Never what learns from trials."""
