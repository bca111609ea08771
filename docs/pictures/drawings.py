"""The pictures of the chapters' texts."""

from svg import Picture


def rnn() -> Picture:
    p = Picture(
        "rnn", 720, 300, "Linear attention as a recurrent network",
        "A row of states S_t-1, S_t and S_t+1, each a matrix of Dk rows and Dv columns. Between two of them the outer product "
        "of the key k_t and the value v_t is added. From each state the query q_t reads the output o_t.",
    )  # fmt: skip
    for i, name in enumerate(("t-1", "t", "t+1")):
        x = 60 + 240 * i
        p.box(x, 110, 84, 84, "a", 0)
        for j in range(1, 4):
            p.line(x + 21 * j, 110, x + 21 * j, 194, "faint")
            p.line(x, 110 + 21 * j, x + 84, 110 + 21 * j, "faint")
        p.text(x + 42, 158, f"S_{name}", "middle mono bold")
        p.arrow((x + 42, 194), (x + 42, 236))
        p.labelled(x + 2, 238, 80, 26, [f"o_{name}"], "c", "middle mono")
        p.text(x - 6, 224, f"q_{name}", "end mono")
        p.arrow((x, 220), (x + 36, 220))
        if i < 2:
            following = ("t", "t+1")[i]
            p.arrow((x + 84, 152), (x + 150, 152))
            p.add(f'<circle class="paper" cx="{x + 162}" cy="152" r="12"/>')
            p.text(x + 162, 157, "+")
            p.arrow((x + 174, 152), (x + 240, 152))
            p.labelled(x + 92, 58, 140, 32, [f"k_{following}ᵀ v_{following}"], "b", "middle mono")
            p.arrow((x + 162, 90), (x + 162, 140))
            p.text(x + 128, 36, f"k_{following}", "middle mono")
            p.text(x + 196, 36, f"v_{following}", "middle mono")
            p.arrow((x + 128, 41), (x + 136, 58))
            p.arrow((x + 196, 41), (x + 188, 58))
    p.text(60, 96, "[Dk, Dv]", "small soft")
    p.lines(10, 20, ["written: the outer", "product of key and value"], "small soft")
    p.text(10, 288, "read: a query times the state", "small soft")
    p.arrow((624, 152), (700, 152))
    return p


def adjoint() -> Picture:
    p = Picture(
        "adjoint", 720, 330, "The adjoint of a running sum is a running sum from the other end",
        "Above, a row of states S_1 to S_4: each is the one before plus k^T v of its position, from left to right, and gives an "
        "output and, backwards, dq from do. Below, a row of adjoints R_1 to R_4 from right to left: each is the one after plus "
        "q^T do of its position, and gives dk and dv.",
    )  # fmt: skip
    for i in range(1, 5):
        x = 110 + 150 * (i - 1)
        p.labelled(x, 86, 72, 44, [f"S_{i}"], "a", "middle mono bold")
        p.labelled(x, 206, 72, 44, [f"R_{i}"], "d", "middle mono bold")
        p.labelled(x - 14, 28, 100, 28, [f"k_{i}ᵀ v_{i}"], "b", "middle mono")
        p.arrow((x + 36, 56), (x + 36, 86))
        p.labelled(x - 14, 280, 100, 28, [f"q_{i}ᵀ do_{i}"], "b", "middle mono")
        p.arrow((x + 36, 280), (x + 36, 250))
        p.arrow((x + 36, 130), (x + 36, 148))
        p.text(x + 36, 162, f"dq_{i}", "middle mono")
        p.arrow((x + 36, 206), (x + 36, 188))
        p.text(x + 36, 182, f"dk_{i}, dv_{i}", "middle mono")
        if i < 4:
            p.arrow((x + 72, 108), (x + 150, 108))
            p.arrow((x + 150, 228), (x + 72, 228))
    p.arrow((60, 108), (110, 108))
    p.text(48, 113, "0", "middle mono")
    p.arrow((682, 228), (632, 228))
    p.text(694, 233, "0", "middle mono")
    p.text(10, 20, "positions", "small soft")
    return p


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


def five_steps() -> Picture:
    p = Picture(
        "five_steps", 820, 520, "The five steps and what lies in memory between them",
        "Step 1, decay_cumsum, makes sums of g. Step 2, prepare_qg_kg, makes q_g and k_g of q, k and the sums. Step 3, "
        "fused_chunk, walks the sub-chunks with q_g, k_g, v, the sub-chunks' last sums and S_0, and leaves partials and the final "
        "state. Step 4, inner_chunk, makes scores of q, k and the sums. Step 5, combine, makes o of the partials, the scores and v.",
    )  # fmt: skip

    def tensor(x, y, name, shape, width=150):
        p.labelled(x, y, width, 44, [name, shape], "a")

    def step(x, y, number, name, grid, width=176):
        p.labelled(x, y, width, 44, [f"{number}  {name}", grid], "b", "middle small bold")

    tensor(20, 20, "g", "[B, H, L, Dk]")
    step(240, 20, 1, "decay_cumsum", "(NK, R, B H)")
    tensor(490, 20, "sums", "[B, H, L, Dk] fp32")
    p.arrow((170, 42), (240, 42))
    p.arrow((416, 42), (490, 42))
    tensor(20, 120, "q, k", "[B, H, L, Dk]")
    step(240, 120, 2, "prepare_qg_kg", "(NK, R, B H)")
    tensor(490, 120, "q_g, k_g", "[B, H, L, Dk] bf16")
    p.arrow((170, 142), (240, 142))
    p.arrow((416, 142), (490, 142))
    p.arrow((520, 64), (520, 92), (328, 92), (328, 120))
    tensor(20, 220, "v, S_0", "[B, H, L, Dv]")
    step(240, 220, 3, "fused_chunk", "(NK, NV, B H)")
    tensor(490, 220, "partials, final state", "[NK, B, H, L, Dv] fp32", 176)
    p.arrow((170, 242), (240, 242))
    p.arrow((416, 242), (490, 242))
    p.arrow((520, 164), (520, 192), (328, 192), (328, 220))
    p.arrow((640, 42), (700, 42), (700, 202), (380, 202), (380, 220), kind="line dashed")
    p.text(706, 120, "last rows of", "small")
    p.text(706, 136, "the sub-chunks", "small")
    step(240, 320, 4, "inner_chunk", "(NK, R, B H)")
    tensor(490, 320, "scores", "[NK, B, H, R, 16, 16] bf16", 176)
    p.arrow((416, 342), (490, 342))
    p.arrow((210, 142), (210, 332), (240, 332))
    p.arrow((640, 30), (806, 30), (806, 302), (328, 302), (328, 320))
    step(240, 430, 5, "combine", "(NV, R, B H)")
    tensor(490, 430, "o", "[B, H, L, Dv]")
    p.arrow((416, 452), (490, 452))
    p.arrow((190, 242), (190, 446), (240, 446))
    p.arrow((578, 364), (578, 398), (328, 398), (328, 430))
    p.arrow((666, 242), (706, 242), (706, 412), (372, 412), (372, 430))
    p.text(20, 505, "blue: in device memory; yellow: a kernel and its grid", "small soft")
    return p


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


def all_drawings() -> list[Picture]:
    return [rnn(), adjoint(), chunks(), chunk_backward(), two_levels(), five_steps(), inverse(), hillis_steele(), blelloch()]
