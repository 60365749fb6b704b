"""Which seeds run, in which processes, for how long, and what they counted. Nothing of one seed's world."""
