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



def vanishing_product() -> Picture:
    p = Picture(
        "vanishing_product", 770, 392, "A number that vanishes",
        "A logarithmic scale from 1e-38 to 1e38 over positions 0 to 1800, with gates of exp(-0.05). G_t falls along a straight "
        "line from 1 and reaches the smallest normal fp32 number, 1.2e-38, at position 1746. 1 / G_i rises as a straight line and "
        "has reached 8e37 there, just below the largest fp32 number, 3.4e38. The quotient G_t / G_(t-16) is 0.45 everywhere.",
    )  # fmt: skip
    left, right, one, decade = 80, 600, 176, 3.4

    def x(t):
        return left + (right - left) * t / 1800

    def y(power):
        return one - decade * power

    p.box(left, y(44), right - left, y(-44) - y(44), "line", 0)
    for power, name in ((40, "1e40"), (20, "1e20"), (0, "1"), (-20, "1e-20"), (-40, "1e-40")):
        p.line(left - 5, y(power), left, y(power))
        p.text(left - 9, y(power) + 4, name, "end small")
    for t in (0, 600, 1200, 1800):
        p.line(x(t), y(-44), x(t), y(-44) + 5)
        p.text(x(t), y(-44) + 19, f"t = {t}" if t == 0 else str(t), "middle small")
    for power, words in ((38.53, "fp32's largest number"), (-37.92, "the smallest normal one")):
        p.line(left, y(power), right, y(power), "line dashed")
        p.text(right + 8, y(power) + 4, words, "small soft")
    per = 0.05 / 2.302585
    p.line(x(0), y(0), x(1746), y(-1746 * per))
    p.line(x(0), y(0), x(1746), y(1746 * per))
    p.line(x(16), y(-0.35), x(1746), y(-0.35))
    p.line(x(1746), y(44), x(1746), y(-44), "faint dashed")
    p.text(x(1180), y(-1180 * per) + 22, "G_t", "end mono bold")
    p.text(x(1180), y(1180 * per) - 12, "1 / G_i", "end mono bold")
    p.lines(right + 8, y(0) - 2, ["G_t / G_(t-16),", "0.45 everywhere"], "small")
    p.text(x(1746) - 8, y(-44) - 5, "position 1746", "end small soft")
    p.text(left, 376, "gates of exp(-0.05): only the quotient is wanted, and it never leaves the range", "small soft")
    return p


def cut_a_decay() -> Picture:
    p = Picture(
        "cut_a_decay", 780, 404, "Where a decay may be cut",
        "Key 3 and query 6 on a line of positions 0 to 8, with gates of one half: the decay from 3 to 6 is 1/8. Cut at 5, the key's "
        "factor is 1/4 and the query's 1/2, both decays forwards in time. Cut in front of the key, at 0, the key's factor goes "
        "backwards and is 8, the query's is 1/64. Cut behind the query, at 8, the key's factor is 1/32, and the query's goes "
        "backwards and is 4.",
    )  # fmt: skip
    first, step = 196, 48

    def x(position):
        return first + step * position

    def line(y):
        p.line(x(0), y, x(8), y, "faint")
        for i in range(9):
            p.line(x(i), y - 4, x(i), y + 4, "faint")

    p.text(20, 52, "gates of 1/2", "small soft")
    for i in range(9):
        p.text(x(i), 34, str(i), "middle small mono")
    line(48)
    p.labelled(x(3) - 16, 60, 32, 24, ["k_3"], "a", "middle mono small")
    p.labelled(x(6) - 16, 60, 32, 24, ["q_6"], "c", "middle mono small")
    p.arrow((x(3) + 16, 72), (x(6) - 16, 72))
    p.text(x(4.5), 66, "1/8", "middle mono small bold")
    p.text(624, 76, "the decay of the pair", "small")

    rows = (
        (5, ["in between:", "a decay of each"], "1/4", "1/2", "1/4 × 1/2 = 1/8", "no factor above 1"),
        (0, ["in front of both:", "the key divides"], "8", "1/64", "8 × 1/64 = 1/8", "the key's is above 1"),
        (8, ["behind both:", "the query divides"], "1/32", "4", "1/32 × 4 = 1/8", "the query's is above 1"),
    )
    for number, (cut, words, of_key, of_query, product, verdict) in enumerate(rows):
        top = 112 + 96 * number
        p.lines(20, top + 24, words, "small")
        p.line(x(cut), top - 2, x(cut), top + 68, "line dashed")
        p.text(x(cut), top - 6, "cut", "middle small bold")
        for y, start, end, label, kind, middle in (
            (top + 22, 3, cut, of_key, "a", (3 + cut) / 2),
            (top + 54, cut, 6, of_query, "c", (cut + 6) / 2),
        ):
            backwards = end < start
            line(y)
            key = kind == "a"
            p.box(x(3 if key else 6) - 5, y - 5, 10, 10, kind)
            p.arrow((x(start), y), (x(end), y), kind="line dashed" if backwards else "line")
            p.text(x(middle), y - 7, label, "middle mono small bold")
        p.text(624, top + 30, product, "mono small")
        p.text(624, top + 50, verdict, "small soft")
    p.box(20, 383, 10, 10, "a")
    p.text(36, 392, "the key's factor", "small soft")
    p.box(150, 383, 10, 10, "c")
    p.text(166, 392, "the query's factor", "small soft")
    p.text(300, 392, "an arrow forwards fades, an arrow backwards (dashed) divides", "small soft")
    return p


def fading_keys() -> Picture:
    p = Picture(
        "fading_keys", 770, 322, "Sixteen keys fade, four of them shown",
        "Rows are positions 1 to 4, columns the registers of four keys, with gates of 0.9. At each position the keys before it are "
        "multiplied by 0.9 and a new key is added: position 4 has 0.73, 0.81, 0.9 and 1 times the keys. The query of each "
        "position is multiplied with what is left of the keys, which gives the scores, and fades from the start: 0.9, 0.81, 0.73, "
        "0.66. The last row of keys is k~, and the product of all four gates, 0.66, is G.",
    )  # fmt: skip
    power = ["", "0.9 ", "0.81 ", "0.73 ", "0.66 "]
    width, height, left, top = 88, 40, 92, 54
    p.text(left + 2 * width, 24, "a register for each key", "middle small")
    p.lines(left + 4 * width + 20, 24, ["scores: q_t", "times the row"], "small")
    p.lines(left + 4 * width + 248, 24, ["the query, faded", "from the start"], "middle small")
    for t in range(1, 5):
        y = top + (t - 1) * 56
        p.text(left - 14, y + 25, f"t = {t}", "end small mono")
        for i in range(1, 5):
            x = left + (i - 1) * width
            if i <= t:
                p.labelled(x, y, width - 8, height, [f"{power[t - i]}k_{i}"], "c" if t == 4 else "a", "middle mono small")
                if t < 4:
                    p.arrow((x + 40, y + height), (x + 40, y + 56))
        p.text(left + 4 * width + 20, y + 25, " ".join(f"P_{t}{i}" for i in range(1, t + 1)), "mono small")
        p.labelled(left + 4 * width + 200, y, 96, height, [f"{power[t]}q_{t}"], "b", "middle mono small")
    p.text(left + width + 48, top + 50, "each arrow: times the gate, 0.9", "small soft")
    p.text(left, 296, "the last row is k~, which the state gets", "small")
    p.text(left + 4 * width + 20, 296, "G = 0.66, all four gates", "small")
    p.text(left + 4 * width + 200, 296, "the column is q~", "small")
    return p


def sub_chunk_is_chunk() -> Picture:
    p = Picture(
        "sub_chunk_is_chunk", 770, 372, "The sub-chunk is the chunk",
        "Left, subchunk_tensor_core: four sub-chunks with four e on the diagonal and six products # below it; under them the state "
        "S takes one step, over the whole chunk. Right, subchunk_walk: only the four e are left; under them the state takes four "
        "steps, one after each sub-chunk, and what the # were goes through it.",
    )  # fmt: skip
    side, top = 46, 62
    for panel, title in enumerate(("subchunk_tensor_core", "subchunk_walk")):
        left = 96 + 390 * panel
        p.text(left + 2 * side, 26, title, "middle mono bold")
        p.text(left - 12, top + 2 * side, "queries", "end small soft")
        p.text(left + 2 * side, top - 12, "keys", "middle small soft")
        for r in range(4):
            for s in range(r + 1):
                x, y = left + side * s, top + side * r
                if s < r and panel == 0:
                    p.labelled(x, y, side, side, ["#"], "b", "middle mono bold")
                elif s < r:
                    p.add(f'<rect class="faint dashed" x="{x}" y="{y}" width="{side}" height="{side}"/>')
                else:
                    p.box(x, y, side, side, "paper", 0)
                    p.polygon([(x, y), (x, y + side), (x + side, y + side)], "d")
                    p.text(x + 15, y + 37, "e", "middle mono bold")
        y = top + 4 * side + 34
        places = (0, 4) if panel == 0 else range(5)
        for i in places:
            p.labelled(left + side * i - 15, y, 30, 30, ["S"], "a", "middle mono bold")
        for a, b in zip(places, list(places)[1:]):
            p.arrow((left + side * a + 15, y + 15), (left + side * b - 15, y + 15))
        words = ("one step per chunk", "one step per sub-chunk")[panel]
        p.text(left + 2 * side, y + 52, words, "middle small")
        if panel == 1:
            p.lines(left + 4 * side + 12, top + 24, ["what the #", "were goes", "through S"], "small soft")
    p.text(96, 356, "for 128 columns: 1280 mma", "small soft")
    p.text(486, 356, "1088 mma, and one barrier instead of three", "small soft")
    return p


def gated_segments() -> Picture:
    p = Picture(
        "gated_segments", 770, 318, "Segments with gates",
        "Four segments side by side. A first kernel walks segments 0 to 2 at once, each from a state of zeros, and leaves what each "
        "adds, H, and its decay, G. A second kernel goes from left to right: the state times G_0 plus H_0 is what segment 1 starts "
        "from, and so on. A third kernel walks all four segments at once from these states and writes outputs.",
    )  # fmt: skip
    left, width = 120, 160

    def x(m):
        return left + width * m

    for m in range(4):
        p.text(x(m) + 70, 24, f"segment {m}", "middle small bold")
        if m < 3:
            p.labelled(x(m), 44, 140, 46, ["walk from 0:", f"H_{m} and G_({m})"], "b")
            p.arrow((x(m) + 80, 90), (x(m) + 80, 156))
        p.labelled(x(m), 234, 140, 46, ["walk from its state:", "outputs"], "c")
        p.labelled(x(m) - 17, 142, 34, 34, ["S"], "a", "middle mono bold")
        p.arrow((x(m), 176), (x(m) + 40, 234))
        if m < 3:
            p.arrow((x(m) + 17, 159), (x(m + 1) - 17, 159))
            p.text(x(m) + 80, 176, f"G_({m}) S + H_{m}", "middle mono small")
    for y, words in ((62, ["1  at once"]), (154, ["2  in order,", "per element"]), (252, ["3  at once"])):
        p.lines(10, y, words, "small soft")
    p.text(left, 306, "k~, decays and v are read twice, except those of the last segment", "small soft")
    return p


def decay_between_products() -> Picture:
    p = Picture(
        "decay_between_products", 780, 372, "A decay between two products",
        "Four rows over the sub-chunks of a chunk. The tensor core adds to S, then computes O, sub-chunk after sub-chunk. When "
        "the product that adds to S of r has ended, the threads copy S to bf16 and multiply it by the decay of r + 1, while the "
        "tensor core computes O of r. Then they start the product that adds to S of r + 1. While that runs they write O of r. "
        "Above, one thread loads tiles of later chunks; below, three warps store O of the chunk when all of it is written.",
    )  # fmt: skip
    left, period = 112, 152
    rows = ((26, ["one thread", "loads"]), (112, ["tensor core"]), (196, ["threads of", "the state"]), (292, ["three warps", "store"]))
    for y, words in rows:
        p.lines(8, y + (23 if len(words) == 1 else 15), words, "small")
        p.line(left - 8, y + 44, 772, y + 44, "faint")
    p.labelled(left, 26, 300, 36, ["tiles of later chunks, each as soon as", "its place is empty: up to four chunks ahead"])
    p.arrow((left + 22, 62), (left + 22, 112))
    p.text(left + 30, 90, "full", "small bold")
    p.arrow((left + 4 * period - 16, 112), (left + 4 * period - 16, 62))
    p.text(left + 4 * period - 8, 90, "empty", "small bold")
    p.labelled(left + 4 * period - 60, 26, 110, 36, ["the place is", "filled again"])
    for r in range(4):
        x = left + period * r
        p.text(x + 94, 104, f"sub-chunk {r}", "middle small soft")
        p.labelled(x, 112, 44, 36, ["add", "to S"], "a")
        p.labelled(x + 48, 112, 100, 36, [f"O of {r}:", "nine wgmma"], "c")
        p.labelled(x + period - 4, 196, 50, 36, ["write", f"O of {r}"])
        if r < 3:
            p.labelled(x + 54, 196, 72, 36, ["copy S,", f"S × G_{r + 1}"], "d")
            p.arrow((x + 44, 148), (x + 56, 196))
            p.arrow((x + 124, 196), (x + period + 6, 148))
    p.lines(left + 54, 254, ["waits for S alone:", "O of 0 still runs"], "small soft")
    p.lines(left + period + 54, 254, ["then a fence, and", "the next product"], "small soft")
    p.labelled(left, 292, 430, 36, ["O of the chunk before"])
    p.arrow((left + 4 * period + 21, 232), (left + 4 * period + 21, 292))
    p.text(left + 4 * period + 12, 268, "output_full", "end small bold")
    p.labelled(left + 4 * period - 8, 292, 58, 36, ["O of", "this one"])
    p.text(8, 358, "not to scale: 570 clocks from one sub-chunk to the next, of which its ten products take some 390", "small soft")
    return p


def what_arrives_leaves() -> Picture:
    p = Picture(
        "what_arrives_leaves", 760, 300, "What arrives in a row of the state leaves it",
        "Three states in a row, S_t-1, S_t and S_t+1, joined by gates. The row sums of S_t times dS_t are split in two ways. Two "
        "arrows arrive at S_t: dg_t through the gate of t, and k_t dk_t from the key. Two arrows leave it: q_t dq_t to the query, "
        "and dg_t+1 through the gate of t + 1.",
    )  # fmt: skip
    for i, name in enumerate(("t-1", "t", "t+1")):
        x = 60 + 280 * i
        p.labelled(x, 118, 80, 64, [f"S_{name}"], "a" if i != 1 else "d", "middle mono bold")
        if i < 2:
            following = ("t", "t+1")[i]
            p.arrow((x + 80, 150), (x + 280, 150))
            p.labelled(x + 130, 134, 100, 32, [f"exp(g_{following})"], "paper", "middle mono small")
            p.text(x + 180, 122, f"dg_{following}", "middle mono bold")
    p.labelled(310, 26, 140, 32, ["key: k_tᵀ v_t"], "b", "middle mono small")
    p.arrow((380, 58), (380, 118))
    p.text(392, 92, "k_t . dk_t", "mono bold")
    p.labelled(310, 226, 140, 32, ["query: q_t S_t"], "c", "middle mono small")
    p.arrow((380, 182), (380, 226))
    p.text(392, 210, "q_t . dq_t", "mono bold")
    p.text(60, 288, "for each row of S:  dg_t + k_t . dk_t  =  sum of S_t . dS_t  =  q_t . dq_t + dg_t+1", "mono small")
    return p


def one_queue() -> Picture:
    p = Picture(
        "one_queue", 780, 232, "The sums of dq, with an anchor per sub-chunk and with one per chunk",
        "Above, anchored_pairs: eight products of dO with the state and a wait; then four times a decay of the sums, a product with "
        "the keys of a sub-chunk, and a wait. Below, one_anchor: the eight products with the state and the four with the keys in "
        "one queue, and one wait at the end.",
    )  # fmt: skip
    p.text(10, 26, "anchored_pairs", "mono bold")
    x = 130
    p.labelled(x, 40, 150, 40, ["dO Sᵀ, eight wgmma"], "a")
    x += 150
    for s in range(4):
        p.labelled(x, 40, 30, 40, ["wait"], "paper", "middle small")
        p.labelled(x + 30, 40, 48, 40, [f"× G_{s}"], "d", "middle mono small")
        p.labelled(x + 78, 40, 32, 40, [f"k~_{s}"], "b", "middle mono small")
        x += 110
    p.labelled(x, 40, 30, 40, ["wait"], "paper", "middle small")
    p.lines(10, 56, ["the sums of", "a warp"], "small soft")
    p.text(10, 122, "one_anchor", "mono bold")
    p.labelled(130, 136, 150, 40, ["dO Sᵀ, eight wgmma"], "a")
    p.labelled(280, 136, 128, 40, ["R k^, four wgmma"], "b")
    p.labelled(408, 136, 30, 40, ["wait"], "paper", "middle small")
    p.text(450, 161, "no gate in between", "small soft")
    p.text(130, 212, "the factor of the anchor comes at the end, for each element, in both", "small soft")
    return p


def gla_layer() -> Picture:
    p = Picture(
        "gla_layer", 780, 372, "The layer around gla",
        "From left to right. x is multiplied by Wq, Wk and Wv, which gives q, k and v; by W1 and then W2, whose result through the "
        "logsigmoid is g; and by Wz, which gives z. q, k, v and g go into gla. Its output o is divided by its norm, multiplied by "
        "z sigmoid(z), which gives u, and u times Wo is y. Only gla looks from position to position.",
    )  # fmt: skip
    p.labelled(10, 140, 64, 60, ["x", "d_model"], "c")
    p.line(74, 170, 100, 170)
    p.line(100, 46, 100, 330)
    names = (("Wq", "q", "H Dk"), ("Wk", "k", "H Dk"), ("Wv", "v", "H Dv"), ("", "g", "H Dk"), ("Wz", "z", "H Dv"))
    for i, (weight, result, width) in enumerate(names):
        y = 46 + 66 * i if i < 4 else 330
        if weight:
            p.arrow((100, y), (150, y))
            p.labelled(150, y - 17, 56, 34, [weight], "b", "middle mono")
            p.arrow((206, y), (320, y))
        else:
            p.arrow((100, y), (120, y))
            p.labelled(120, y - 17, 42, 34, ["W1"], "b", "middle mono")
            p.arrow((162, y), (182, y))
            p.text(172, y - 22, "16 numbers", "middle small soft")
            p.labelled(182, y - 17, 42, 34, ["W2"], "b", "middle mono")
            p.arrow((224, y), (236, y))
            p.labelled(236, y - 17, 74, 34, ["logsigmoid"], "paper", "middle small")
            p.arrow((310, y), (320, y))
        p.labelled(320, y - 17, 74, 34, [f"{result}, {width}"], "a", "middle mono small")
        if i < 4:
            p.arrow((394, y), (430, y))
    p.labelled(430, 26, 76, 238, ["gla,", "along L"], "d", "middle bold")
    p.arrow((506, 145), (536, 145))
    p.labelled(536, 122, 66, 46, ["norm", "by head"], "paper", "middle small")
    p.arrow((602, 145), (626, 145))
    p.labelled(626, 128, 34, 34, ["×"], "paper", "middle mono bold")
    p.arrow((660, 145), (684, 145))
    p.labelled(684, 128, 42, 34, ["Wo"], "b", "middle mono")
    p.arrow((726, 145), (742, 145))
    p.labelled(742, 128, 28, 34, ["y"], "c", "middle mono")
    p.text(520, 138, "o", "middle mono small")
    p.text(672, 138, "u", "middle mono small")
    p.arrow((394, 330), (500, 330))
    p.labelled(500, 313, 100, 34, ["z sigmoid(z)"], "paper", "middle mono small")
    p.arrow((600, 330), (643, 330), (643, 162))
    p.lines(430, 284, ["the only part that looks", "from position to position"], "small soft")
    return p


DRAWINGS = (
    two_levels,
    vanishing_product,
    cut_a_decay,
    fading_keys,
    sub_chunk_is_chunk,
    gated_segments,
    decay_between_products,
    what_arrives_leaves,
    one_queue,
    gla_layer,
)
