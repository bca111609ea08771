"""The drawings of chapter 05, the delta rule."""

from svg import Picture


def inverse() -> Picture:
    p = Picture(
        "inverse", 720, 260, "A triangular matrix inverted in blocks",
        "Three 4 x 4 arrangements of blocks of 16 x 16, lower triangles. First the four blocks on the diagonal are inverted by "
        "substitution, side by side. Then the blocks (1, 0) and (3, 2) are merged: -X22 A21 X11, two of them at once. Last the "
        "lower left quarter, 32 x 32, in the same way.",
    )  # fmt: skip
    titles = ("16 x 16 by substitution", "merged to 32 x 32", "merged to 64 x 64")
    for step in range(3):
        x0, y0, side = 30 + 240 * step, 50, 40
        p.text(x0 + 80, 30, titles[step], "middle bold")
        for r in range(4):
            for c in range(r + 1):
                new = (r == c) if step == 0 else (r // 2 == c // 2 and r != c) if step == 1 else r // 2 != c // 2
                done = (r == c) if step == 1 else r // 2 == c // 2 if step == 2 else False
                kind = "b" if new else "c" if done else "paper"
                p.box(x0 + side * c, y0 + side * r, side, side, kind, 0)
                label = "X" if r == c else "#" if new or done else "A"
                p.text(x0 + side * c + 20, y0 + side * r + 25, label, "middle mono" + ("" if new or done else " soft"))
        if step < 2:
            p.arrow((x0 + 178, y0 + 80), (x0 + 222, y0 + 80))
    p.lines(110, 232, ["four of them, 16 steps", "each, side by side"])
    p.lines(350, 232, ["# = -X22 A21 X11,", "two pairs at once"])
    p.lines(590, 232, ["the same with 32 x 32:", "A21 is a quarter of A"])
    return p


DRAWINGS = (inverse,)
