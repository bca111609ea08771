"""The drawings of chapter 03, gates."""

from svg import Picture


def two_levels() -> Picture:
    p = Picture(
        "two_levels", 740, 330, "Two levels of chunks",
        "The queries of one chunk in four sub-chunks of 16, downwards; keys to the right. All keys of earlier chunks are one "
        "product with the state. Within the chunk, a sub-chunk's scores with an earlier sub-chunk are a product of decayed "
        "queries and decayed keys; a sub-chunk's scores with itself are computed pair by pair. Above the diagonal is nothing.",
    )  # fmt: skip
    x0, y0, side, before = 90, 60, 56, 150
    p.text(x0 + before / 2, y0 - 34, "keys of chunk n - 1 and before", "middle small")
    p.text(x0 + before + 2 * side, y0 - 34, "sub-chunks of chunk n", "middle small")
    p.labelled(x0, y0, before, 4 * side, ["queries, decayed from", "the chunk's start,", "times the state S"], "a")
    for r in range(4):
        p.text(x0 - 12, y0 + side * r + 33, f"queries {r}" if r == 0 else str(r), "end small")
        p.text(x0 + before + side * r + side / 2, y0 - 12, str(r), "middle small")
        for s in range(4):
            x, y = x0 + before + side * s, y0 + side * r
            if s < r:
                p.labelled(x, y, side, side, ["#"], "b", "middle mono bold")
            elif s == r:
                p.box(x, y, side, side, "paper", 0)
                p.polygon([(x, y), (x, y + side), (x + side, y + side)], "d")
                p.text(x + 18, y + 45, "e", "middle mono bold")
    x = x0 + before + 4 * side + 36
    p.box(x, 70, 22, 22, "a", 0)
    p.lines(x + 34, 80, ["a product; the cut is", "the chunk's border"], "small")
    p.labelled(x, 140, 22, 22, ["#"], "b", "middle mono bold")
    p.lines(
        x + 34,
        150,
        ["a product: q~, from the cut on,", "k~, up to the cut; the cut is", "where the queries begin"],
        "small",
    )
    p.labelled(x, 226, 22, 22, ["e"], "d", "middle mono bold")
    p.lines(x + 34, 236, ["no common cut: pair by pair,", "in fp32"], "small")
    p.text(x0 + before, y0 + 4 * side + 26, "C = 64 positions, sub-chunks of c = 16", "small soft")
    return p


DRAWINGS = (two_levels,)
