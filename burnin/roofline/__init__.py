"""How fast a healthy part must be: analytical models of matrix products and of collectives. Pure, torch-free.

What belongs here: where bytes come from (`levels`), which clock a power limit allows (`clock`), products (`gemm`),
collectives (`collective`), what they mean for the cases of `rate` (`cases`). What a part is made of is data in
`burnin.parts`. Always true: without measurements on a part the result is a ceiling and says so; nobody is judged by it.
"""
