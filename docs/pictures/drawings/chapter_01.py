"""The drawings of chapter 01, linear attention."""

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


DRAWINGS = (rnn, adjoint)
