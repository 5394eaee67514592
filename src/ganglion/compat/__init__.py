"""What old scripts want: names that are gone, and ImageDataGenerator."""
