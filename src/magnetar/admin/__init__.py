"""What an operator can ask or do, as values; the command line and the console only render them."""
