"""Network namespaces, relays, TLS peers and a site's nginx. Nothing that leaves this machine."""
