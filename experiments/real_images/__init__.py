"""The results on real images: their rows as files, and the pages that are generated from them."""
