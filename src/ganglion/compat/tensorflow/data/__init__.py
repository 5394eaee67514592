"""`tf.data`: data sets as chains of lazy steps."""
