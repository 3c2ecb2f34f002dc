"""Protocol stories as readable transcripts, and the playground that plays them."""
