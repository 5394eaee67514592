"""What old scripts use: names that are gone, and ImageDataGenerator."""
