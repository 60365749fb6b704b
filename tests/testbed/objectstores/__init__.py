"""Object stores that tests start on loopback, and a proxy before them that fails on demand."""
