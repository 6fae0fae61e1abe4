"""What a run takes from this machine, and gives back: a folder, processes, ports."""
