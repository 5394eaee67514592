"""The process and the machine: budgets for files, forks, limits, the terminal."""
