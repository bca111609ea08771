"""The drawings of chapter 06, scans."""

from svg import Picture


def hillis_steele() -> Picture:
    p = Picture(
        "hillis_steele", 760, 300, "Hillis and Steele's rounds over eight steps",
        "Four rows of eight maps. In the first round each takes the one before it, in the second the one two places before, in "
        "the third the one four places before; after that each stands for all steps from 1 to its own.",
    )  # fmt: skip
    first = [list(range(1, 9))]
    for d in (1, 2, 4):
        first.append([first[-1][i - d] if i >= d else first[-1][i] for i in range(8)])
    for row in range(4):
        y = 34 + 76 * row
        p.text(14, y + 18, ("steps", "+ 1", "+ 2", "+ 4")[row], "small")
        for i in range(8):
            x = 80 + 84 * i
            begin = first[row][i]
            p.labelled(
                x,
                y,
                58,
                28,
                [f"{begin}-{i + 1}" if begin <= i else str(i + 1)],
                "c" if begin == 1 else "a",
                "middle mono",
            )
            if row < 3:
                d = 1 << row
                p.arrow((x + 29, y + 28), (x + 29, y + 76), kind="faint" if i < d else "line")
                if i + d < 8:
                    p.arrow((x + 40, y + 28), (x + 84 * d + 12, y + 76))
    return p


def blelloch() -> Picture:
    p = Picture(
        "blelloch", 780, 400, "Blelloch's tree over eight steps, up and down",
        "Left a binary tree: eight steps as leaves, their pairs 1-2, 3-4, 5-6 and 7-8 above them, then 1-4 and 5-8, then the root "
        "1-8. Right the same tree on the way down: the root is the identity; a left child gets what its parent has, a right "
        "child that followed by the left child of the way up; the leaves have id, 1, 1-2, up to 1-7: what comes before them.",
    )  # fmt: skip
    up = [["1-8"], ["1-4", "5-8"], ["1-2", "3-4", "5-6", "7-8"], [str(i) for i in range(1, 9)]]
    down = [["id"], ["id", "1-4"], ["id", "1-2", "1-4", "1-6"], ["id", "1"] + [f"1-{i}" for i in range(2, 8)]]
    for side, tree in enumerate((up, down)):
        x0 = 10 + 395 * side
        p.text(x0 + 185, 22, ("up: compose neighbours", "down: what comes before")[side], "middle bold")
        for level, nodes in enumerate(tree):
            width = 370 / len(nodes)
            for i, name in enumerate(nodes):
                x, y = x0 + width * (i + 0.5), 60 + 90 * level
                if level < 3:
                    for child in (0, 1):
                        end = (x0 + width * (i + 0.25 + 0.5 * child), y + 90)
                        if side == 0:
                            p.arrow((end[0], end[1] - 14), (x + (child * 2 - 1) * 8, y + 14))
                        else:
                            p.arrow(
                                (x + (child * 2 - 1) * 8, y + 14),
                                (end[0], end[1] - 14),
                                kind="line" if child else "line dashed",
                            )
                p.labelled(
                    x - 20, y - 14, 40, 28, [name], "d" if name == "id" else "a" if side == 0 else "c", "middle mono"
                )
    p.text(10, 380, "dashed: handed on as it is; drawn through: followed by the left child of the way up", "small soft")
    return p


DRAWINGS = (hillis_steele, blelloch)
