"""The alignment store: from MAF or FASTA to windows of tokens."""
