"""The drawings of chapter 05's branches with gates: gated_delta_rule and kda."""

from svg import Picture

STEP = 110  # from a position to the next one


def line_of_positions(p: Picture, y: float) -> list[float]:
    """The state before a chunk of five positions, a gate before each of them, the state after it; their middles."""
    p.labelled(16, y - 22, 96, 44, ["state before", "the chunk"], "a")
    middles = [190 + STEP * i for i in range(5)]
    p.arrow((112, y), (680, y), kind="faint")
    for i, x in enumerate(middles):
        p.add(f'<circle class="paper" cx="{x - STEP / 2:g}" cy="{y:g}" r="13"/>')
        p.text(x - STEP / 2, y + 4.5, "1/2", "middle small")
        p.labelled(x - 24, y - 18, 48, 36, [str(i + 1)], "c", "middle bold")
    p.labelled(680, y - 22, 92, 44, ["state after", "the chunk"], "a")
    return middles


def gates_factors() -> Picture:
    p = Picture(
        "gates_factors", 780, 300, "Which factor goes where in a chunk of five positions whose gates are one half",
        "A line from the state before a chunk through five positions to the state after it. Before each position stands its "
        "gate, 1/2. What position 4 reads of the state before has passed four gates: 1/16. What it reads of position 2's write "
        "has passed gates 3 and 4: 1/4. Position 2's write reaches the end of the chunk through gates 3, 4 and 5: 1/8.",
    )  # fmt: skip
    y = 140
    x = line_of_positions(p, y)
    p.arrow((64, y - 22), (64, 52), (x[3], 52), (x[3], y - 18))
    p.text(292, 24, "position 4 reads the old state through gates 1 to 4: 1/16", "middle")
    p.text(292, 44, "exp(b_t): on the rows of K and Q that read", "middle small")
    p.arrow((x[1] + 10, y + 18), (x[1] + 10, 196), (x[3], 196), (x[3], y + 18))
    p.text(420, 188, "4 reads what 2 wrote: 1/4", "middle small")
    p.text(420, 213, "exp(b_t - b_i): on pairs, in A and P", "middle small")
    p.arrow((x[1] - 10, y + 18), (x[1] - 10, 246), (726, 246), (726, y + 22))
    p.text(500, 266, "what 2 writes reaches the end through gates 3 to 5: 1/8", "middle")
    p.text(500, 286, "exp(b_end - b_i): on the rows of K that write", "middle small")
    return p


def gates_chain() -> Picture:
    p = Picture(
        "gates_chain", 780, 300, "A chunk of three_blocks: which factors of the gates lengthen the chain",
        "Two rows over time. The tensor cores compute v_new = T Res, then half of Q S, then the update of S, then P v_new, then "
        "K S of the next chunk, then half of its Q S. The threads, meanwhile: during v_new they multiply S by exp(b_end) and "
        "load V; during the update of S they multiply Q S by exp(b); during K S they store O. Between the products, where "
        "nothing of the chain runs, they multiply v_new by exp(b_end - b) and round it, round S, and multiply K S by exp(b), "
        "subtract V and round.",
    )  # fmt: skip
    top, low, height = 48, 150, 54
    p.lines(10, top + 24, ["tensor", "cores"], "small bold")
    p.lines(10, low + 24, ["threads"], "small bold")
    for x, width, lines, kind in (
        (84, 116, ["v_new = T Res"], "a"),
        (200, 62, ["half of", "Q S"], "paper"),
        (330, 112, ["S += Kᵀ v_new"], "a"),
        (442, 64, ["P v_new"], "paper"),
        (506, 112, ["K S of the", "next chunk"], "a"),
        (618, 62, ["half of", "Q S"], "paper"),
    ):
        p.labelled(x, top, width, height, lines, kind)
    for x, width, lines, kind in (
        (84, 116, ["S × exp(b_end),", "load V"], "c"),
        (200, 130, ["v_new: round,", "× exp(b_end - b),", "round again"], "b"),
        (330, 104, ["Q S × exp(b)"], "c"),
        (442, 64, ["round S"], "b"),
        (506, 104, ["store O"], "c"),
        (618, 152, ["K S × exp(b), - V,", "round: this is Res"], "b"),
    ):
        p.labelled(x, low, width, height, lines, kind)
    for x in (200, 442, 618):  # the threads wait for a product
        p.arrow((x, top + height), (x, low))
    for x in (330, 506):  # a product waits for the threads
        p.arrow((x, low), (x, top + height))
    p.arrow((770, low), (770, top + 27), (748, top + 27))
    p.lines(742, top + 24, ["next", "T Res"], "end small")
    y = 250
    for x, kind, words in (
        (84, "a", "a product of the chain"),
        (270, "paper", "another product"),
        (420, "c", "free: a product runs"),
        (590, "b", "in line: the chain waits"),
    ):
        p.box(x, y, 16, 16, kind, 2)
        p.text(x + 22, y + 13, words, "small")
    p.text(84, 290, "not to scale; an arrow says who waits for whom", "small soft")
    p.arrow((84, 28), (200, 28), kind="faint")
    p.text(206, 32, "time", "small soft")
    return p


def gates_crossing() -> Picture:
    p = Picture(
        "gates_crossing", 780, 320, "What crosses the gate of position p",
        "Positions of a chunk in a row, a line at position p between them. Four arrows cross the line: from the state before "
        "the chunk to a read at t, from a write at i to the state after the chunk, from the write at i to the read at t, and "
        "from the state before the chunk to the state after it. A fifth one joins two positions behind p, does not cross, and "
        "cancels.",
    )  # fmt: skip
    y = 150
    p.labelled(14, y - 24, 92, 48, ["S, before", "the chunk"], "a")
    p.labelled(674, y - 24, 92, 48, ["after it,", "with dS"], "d")
    p.line(385, 20, 385, 300, "line dashed")
    p.text(393, 30, "gate of p", "bold")
    for x, name in ((200, "i"), (300, "i"), (470, "t"), (580, "t")):
        p.labelled(x - 22, y - 18, 44, 36, [name], "c", "middle bold")
    p.text(250, y + 5, "writes", "middle small")
    p.text(525, y + 5, "reads", "middle small")
    p.arrow((60, y - 24), (60, 60), (470, 60), (470, y - 18))
    p.text(220, 52, "read_t: t reads S", "middle")
    p.arrow((300, y - 18), (300, 98), (720, 98), (720, y - 24))
    p.text(600, 90, "write_i: later chunks read i", "middle")
    p.arrow((200, y + 18), (200, 226), (590, 226), (590, y + 18))
    p.text(290, 218, "pair_ti: t reads i", "middle")
    p.arrow((60, y + 24), (60, 278), (720, 278), (720, y + 24))
    p.text(210, 270, "exp(b_end) <S, dS>: the state itself", "middle")
    p.arrow((470, y + 18), (470, 194), (566, 194), (566, y + 18), kind="faint")
    p.text(518, 210, "cancels", "middle small soft")
    return p


LEVELS = {8: "a", 4: "c", 2: "d", 1: "b"}


def level(t: int, i: int) -> int:
    """Of the pair t > i within 16 positions: the largest power of two with a multiple in i + 1 ... t."""
    return next(m for m in LEVELS if t // m > i // m)


def kda_levels() -> Picture:
    p = Picture(
        "kda_levels", 780, 350, "The scores of a chunk on two levels: between sub-chunks, and within one",
        "On the left the lower triangle of 64 x 64 scores in blocks of 16. The six blocks below the diagonal are one product "
        "each, with a cut between two sub-chunks. On the right a block of the diagonal, 16 x 16: its lower left quarter is "
        "level 8, in the two remaining triangles follow level 4, 2 and 1, and on the diagonal stand the pairs (t, t), which "
        "have no decay.",
    )  # fmt: skip
    x0, y0, side = 40, 60, 62
    p.text(x0 + 2 * side, 24, "a chunk: 64 queries, 64 keys", "middle bold")
    p.text(x0 + 2 * side, 46, "keys of sub-chunk s", "middle small")
    for r in range(4):
        p.text(x0 - 8, y0 + side * r + side / 2 + 4, f"r={r}", "end small")
        for s in range(r + 1):
            p.labelled(x0 + side * s, y0 + side * r, side, side, ["product"] if s < r else ["within"], "paper" if s < r else "b")
    p.lines(x0, y0 + 4 * side + 22, ["a product: keys decayed to the end of s and", "over what is between, queries from r's start"], "small")
    cell, x1, y1 = 15.5, 340, 60
    p.text(x1 + 8 * cell, 24, "one sub-chunk: 16 positions", "middle bold")
    p.text(x1 + 8 * cell, 46, "key i", "middle small")
    p.text(x1 - 6, y1 + 8 * cell, "t", "end small")
    for t in range(16):
        for i in range(t):
            p.box(x1 + cell * i, y1 + cell * t, cell, cell, LEVELS[level(t, i)], 0)
        p.box(x1 + cell * t, y1 + cell * t, cell, cell, "paper", 0)
    p.arrow((x0 + 2 * side, y0 + side * 1.5), (x1 - 8, y1 + 4 * cell), kind="line dashed")
    for n, (m, kind) in enumerate(LEVELS.items()):
        y = 80 + 34 * n
        p.box(610, y, 18, 18, kind, 0)
        p.text(636, y + 14, f"level {m}: {8 // m} cut{'s' if m < 8 else ''}", "small")
    p.box(610, 216, 18, 18, "paper", 0)
    p.text(636, 230, "q_t . k_t: no gate", "small")
    p.lines(610, 264, ["each level: one product,", "its keys decayed to the cut,", "its queries from the cut"], "small")
    return p


def kda_two_products() -> Picture:
    p = Picture(
        "kda_two_products", 780, 330, "The chain of a chunk with three products, and with two",
        "Above, as in delta_rule: K+ S gives Res, T Res gives v_new, and v_new goes with K- into the state and with P into the "
        "outputs. Three products lie between a state and the next. Below, T has been multiplied into K- and into P before the "
        "walk, which gives K^u and P^u: Res goes with K^u into the state and with P^u into the outputs. Two products lie between "
        "a state and the next.",
    )  # fmt: skip
    for y, title, products in (
        (40, "three products in a chain", (("K+ S", "a"), ("V - K+ S", "paper"), ("T Res", "a"), ("(K-)ᵀ v_new", "a"))),
        (210, "two products in a chain", (("K+ S", "a"), ("V - K+ S", "paper"), ("(K^u)ᵀ Res", "a"))),
    ):
        p.text(14, y - 14, title, "bold")
        p.labelled(14, y, 62, 46, ["S"], "d", "middle bold")
        x, last = 76, 0
        for words, kind in products:
            p.arrow((x, y + 23), (x + 28, y + 23))
            p.labelled(x + 28, y, 106, 46, [words], kind, "middle")
            last, x = x + 28, x + 134
        p.arrow((x, y + 23), (x + 28, y + 23))
        p.labelled(x + 28, y, 62, 46, ["next S"], "d", "middle bold")
        split = last - 14  # where the outputs' product leaves the chain
        p.arrow((split, y + 23), (split, y + 88), (last, y + 88))
        p.labelled(last, y + 66, 106, 44, ["P v_new" if "T Res" in dict(products) else "P^u Res"], "paper", "middle")
        p.arrow((last + 106, y + 88), (last + 134, y + 88))
        p.labelled(last + 134, y + 66, 62, 44, ["O"], "c", "middle bold")
    p.lines(600, 222, ["before the walk, for all", "chunks at once:", "K^u = Tᵀ K-", "P^u = P T"], "small", 18)
    p.text(168, 130, "with Q+ S, which waits for S alone", "middle small soft")
    return p


def kda_anchor() -> Picture:
    p = Picture(
        "kda_anchor", 780, 290, "One anchor for all pairs: the chunk's end",
        "A line of five positions with gates of one half. The decay from the start to t = 4 is 1/16, that from i = 2 to the end "
        "1/8. Together they cover the whole chunk once, 1/32, and the stretch from i to t once more, 1/4. So their product, "
        "divided by the decay of the whole chunk, is the decay of the pair.",
    )  # fmt: skip
    y = 60
    x = line_of_positions(p, y)
    p.text(x[1], y - 30, "i", "middle bold")
    p.text(x[3], y - 30, "t", "middle bold")
    for at, first, last, kind, words in (
        (110, 112, x[3], "b", "exp(b_t) = 1/16, in Q+ and K+"),
        (150, x[1], 680, "a", "exp(b_end - b_i) = 1/8, in K-"),
        (190, 112, 680, "paper", "exp(b_end) = 1/32, divided out"),
        (230, x[1], x[3], "c", "exp(b_t - b_i) = 1/4"),
    ):
        p.labelled(first, at, last - first, 28, [words], kind)
    p.text(60, 169, "times", "middle small")
    p.text(60, 209, "over", "middle small")
    p.text(60, 249, "is", "middle small")
    p.text(390, 282, "1/16 · 1/8 · 32 = 1/4", "middle")
    return p


def kda_slot() -> Picture:
    p = Picture(
        "kda_slot", 780, 340, "A slot of 64 KB of shared memory at four times",
        "Four bars of 64 KB. Loaded: q, k, and g with twice their size. Rows are ready: Q+, K+, K- in the first half of g's "
        "place, and decays of the chunk and their inverses. Inverse is ready: -T in the place of the decays. Prepared: Q+, K+, "
        "-K^u in the place of K-, the chunk's decays, and -P^u.",
    )  # fmt: skip
    unit = 3.6  # pixels per KB
    names = ["loaded", "rows are ready", "inverse is ready", "prepared"]
    bars = [
        [(16, "q", "a"), (16, "k", "a"), (32, "g, in fp32", "b")],
        [(16, "Q+", "c"), (16, "K+", "c"), (16, "K-", "c"), (8, "decays, inverses", "d"), (8, "", "paper")],
        [(16, "Q+", "c"), (16, "K+", "c"), (16, "K-", "c"), (8, "-T, rounded", "d"), (8, "", "paper")],
        [(16, "Q+", "c"), (16, "K+", "c"), (16, "-K^u (J)", "c"), (8, "decays", "d"), (8, "-P^u (R)", "c")],
    ]
    steps = [["running", "sums of g"], ["P, A,", "inverse"], ["products", "with T"]]
    for n, bar in enumerate(bars):
        x, y = 70 + 182 * n, 50
        p.text(x + 56, 34, names[n], "middle bold")
        for size, words, kind in bar:
            p.labelled(x, y, 112, size * unit, [words], kind)
            y += size * unit
        if n < 3:
            p.arrow((x + 116, 165), (x + 178, 165))
            p.lines(x + 147, 132, steps[n], "middle small")
    y = 50
    for size in (16, 16, 16, 8, 8):
        p.text(60, y + size * unit / 2 + 4, f"{size} KB", "end small")
        y += size * unit
    p.text(70, 316, "Each result takes the place of one that is not needed any more. P waits in registers until P T is computed.", "small")
    return p


def kda_horner() -> Picture:
    p = Picture(
        "kda_horner", 780, 250, "Horner's rule through the sub-chunks of a chunk",
        "Above, the sums for the queries of sub-chunk 3, from left to right: they begin with scale dO S^T, and for s = 0, 1 and "
        "2 they are multiplied by the decay of sub-chunk s and Y_3s times the keys of s is added. Then follows the decay from "
        "the start of sub-chunk 3 to each row. Below, the sums for the keys of sub-chunk 0, from right to left: they begin with "
        "v_new dS^T, and for r = 3, 2 and 1 they are multiplied by the decay of sub-chunk r and the transposed Y_r0 times the "
        "queries of r is added. Then follows the decay from each row to the end of sub-chunk 0.",
    )  # fmt: skip
    x, width = [126, 272, 418, 564], 130
    for n, at in enumerate(x):
        p.text(at + width / 2, 22, f"sub-chunk {n}", "middle small bold")
    y = 40
    p.labelled(10, y, 100, 56, ["scale dO Sᵀ"], "a")
    for n in range(3):
        p.arrow((x[n] - 16, y + 28), (x[n], y + 28))
        p.labelled(x[n], y, width, 56, [f"× decay of {n},", f"+ Y_3{n} k̃_{n}"], "c")
    p.arrow((x[3] - 16, y + 28), (x[3], y + 28))
    p.labelled(x[3], y, width, 56, ["× decay from the", "start of 3: dQ of 3"], "b")
    p.text(10, y + 78, "queries of sub-chunk 3: what they read, oldest first", "small soft")
    y = 150
    p.labelled(x[0], y, width, 56, ["× decay to the end", "of 0: dK of 0"], "b")
    for n in (1, 2, 3):
        p.labelled(x[n], y, width, 56, [f"× decay of {n},", f"+ Y_{n}0ᵀ q̃_{n}"], "c")
        p.arrow((x[n], y + 28), (x[n] - 16, y + 28))
    p.labelled(710, y, 62, 56, ["v_new", "dSᵀ"], "a")
    p.arrow((710, y + 28), (694, y + 28))
    p.text(10, y + 78, "keys of sub-chunk 0: what reads them, latest first (Z in the same way)", "small soft")
    return p


def kda_middle() -> Picture:
    p = Picture(
        "kda_middle", 780, 330, "One anchor in the middle of 32 positions, and who works on which chunk",
        "Above, a chunk of 32 positions with its anchor between positions 15 and 16. Queries and keys that read have their "
        "decays from the anchor, q' and k'; keys that write have theirs to it, k~. The state takes exp(m) before the chunk's "
        "products and exp(b_end - m) behind them. Below, one block over time: two warpgroups prepare chunks in turn, each for "
        "two steps, and two others walk through all chunks, with 64 columns of Dv each.",
    )  # fmt: skip
    p.labelled(16, 40, 92, 44, ["S"], "d", "middle bold")
    p.labelled(186, 40, 190, 44, ["positions 0 to 15"], "b")
    p.labelled(376, 40, 190, 44, ["positions 16 to 31"], "b")
    p.labelled(672, 40, 92, 44, ["next S"], "d", "middle bold")
    p.arrow((108, 62), (186, 62))
    p.arrow((566, 62), (672, 62))
    p.text(147, 54, "exp(m)", "middle small")
    p.text(617, 54, "exp(b_end - m)", "middle small")
    p.text(376, 28, "anchor: m, the sum of g up to here", "middle small bold")
    for y, words, inwards in ((104, "q', k': from the anchor to t", False), (126, "k~: from i to the anchor", True)):
        for end in (200, 552):
            p.arrow(*(((end, y), (376, y)) if inwards else ((376, y), (end, y))))
        p.text(572, y + 4, words, "small")
    x, y, width, height = 150, 160, 96, 32
    rows = [("prepares", (0, 2, 4)), ("prepares", (1, 3)), ("walks", range(4)), ("walks", range(4))]
    for r, (what, chunks) in enumerate(rows):
        at = y + r * (height + 8)
        p.text(x - 12, at + 20, f"warpgroup {r} {what}", "end small")
        for n in chunks:
            if what == "walks":
                p.labelled(x + width * (n + 2), at, width - 6, height, [f"step {n}"], "c")
            else:
                p.labelled(x + width * n, at, 2 * width - 6, height, [f"rows, scores, T of {n}"], "a")
    return p


DRAWINGS = [
    gates_factors, gates_chain, gates_crossing, kda_levels, kda_two_products, kda_anchor, kda_slot, kda_middle, kda_horner
]  # fmt: skip
