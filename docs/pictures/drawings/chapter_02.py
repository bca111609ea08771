"""The drawings of chapter 02, chunks."""

from svg import Picture


def chunks() -> Picture:
    p = Picture(
        "chunks", 680, 330, "The score matrix in chunks",
        "A square of queries, downwards, and keys, to the right, in four chunks each. On the diagonal four blocks of C x C, "
        "of which the lower triangle is computed as scores. All blocks to the left of a diagonal block are one state: S_1 for "
        "the queries of chunk 2, S_2 for those of chunk 3, S_3 for those of chunk 4. Above the diagonal nothing is computed.",
    )  # fmt: skip
    x0, y0, side = 130, 50, 64
    p.text(x0 - 12, y0 - 12, "keys of chunk", "end small")
    for n in range(4):
        y = y0 + side * n
        p.text(x0 - 12, y + 38, "queries of chunk 1" if n == 0 else str(n + 1), "end small")
        p.text(x0 + side * n + 32, y0 - 12, str(n + 1), "middle small")
        if n:
            p.labelled(x0, y, side * n, side, [f"S_{n}"], "a", "middle mono bold")
        x = x0 + side * n
        p.box(x, y, side, side, "paper", 0)
        p.polygon([(x, y), (x, y + side), (x + side, y + side)], "b")
    p.box(x0, y0, 4 * side, 4 * side, "line", 0)
    x = x0 + 4 * side + 40
    p.box(x, 70, 22, 22, "b", 0)
    p.lines(x + 34, 80, ["scores, masked: the only part of", "the L x L matrix that is computed"], "small")
    p.box(x, 140, 22, 22, "a", 0)
    p.lines(
        x + 34,
        150,
        ["not computed: these keys are", "summed up in one state [Dk, Dv],", "however many they are"],
        "small",
    )
    p.box(x, 226, 22, 22, "paper", 0)
    p.lines(x + 34, 236, ["keys that come later: weight 0"], "small")
    return p


def chunk_backward() -> Picture:
    p = Picture(
        "chunk_backward", 700, 330, "The gradients of a chunk",
        "The square of queries, downwards, and keys, to the right, in four chunks each. The gradient of chunk 2's queries is a "
        "sum along their row: the scores in the triangle on the diagonal, and to its left the state S_1. The gradients of "
        "chunk 2's keys and values are sums along their column: the same triangle, and below it dS_2, the gradient of the "
        "state, which stands for the queries of chunks 3 and 4.",
    )  # fmt: skip
    x0, y0, side = 130, 50, 64
    p.text(x0 - 12, y0 - 12, "keys of chunk", "end small")
    for n in range(4):
        y = y0 + side * n
        p.text(x0 - 12, y + 38, "queries of chunk 1" if n == 0 else str(n + 1), "end small")
        p.text(x0 + side * n + 32, y0 - 12, str(n + 1), "middle small")
        for m in range(4):
            p.box(x0 + side * m, y, side, side, "paper", 0)
        x = x0 + side * n
        p.line(x, y, x + side, y + side, "faint")
    p.labelled(x0, y0 + side, side, side, ["S_1"], "a", "middle mono bold")
    p.labelled(x0 + side, y0 + 2 * side, side, 2 * side, ["dS_2"], "c", "middle mono bold")
    x, y = x0 + side, y0 + side
    p.polygon([(x, y), (x, y + side), (x + side, y + side)], "b")
    p.box(x0, y0, 4 * side, 4 * side, "line", 0)
    p.arrow((x0 + 6, y + side - 8), (x0 + 2 * side - 6, y + side - 8))
    p.arrow((x + 10, y0 + 4 * side - 6), (x + 10, y + 22))
    x = x0 + 4 * side + 40
    p.box(x, 70, 22, 22, "b", 0)
    p.lines(x + 34, 80, ["inside the chunk: scores, masked", "as they are forwards"], "small")
    p.box(x, 130, 22, 22, "a", 0)
    p.lines(x + 34, 140, ["dq, along the row: the keys before", "are in one state, S"], "small")
    p.box(x, 190, 22, 22, "c", 0)
    p.lines(x + 34, 200, ["dk and dv, along the column: the", "queries after are in one gradient", "of the state, dS"], "small")
    return p


DRAWINGS = (chunks, chunk_backward)
