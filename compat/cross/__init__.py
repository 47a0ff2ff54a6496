"""Cross tests: what one stock client wrote, every other one reads, of both protocols, record for record."""
