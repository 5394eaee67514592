"""What surrounds a training: files' budget, forks, the machine and its terminal."""
