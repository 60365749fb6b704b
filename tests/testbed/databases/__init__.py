"""PostgreSQL servers, engines of short life and the rows that tests hang things on. No queries of the master."""
