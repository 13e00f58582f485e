"""Methods, pruners and patterns of other papers, which the library's own are compared with."""
