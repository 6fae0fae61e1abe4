"""Who is measured: the raw drivers, our stores, and the peers, one module each."""
