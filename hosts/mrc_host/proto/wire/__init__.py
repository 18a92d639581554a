"""Wire format: the table of headers, the codecs that it drives, encapsulation, serial numbers."""
