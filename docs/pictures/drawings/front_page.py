"""The drawing of the front page: which chapter needs which."""

from svg import Picture


def way() -> Picture:
    p = Picture(
        "way", 770, 310, "Which chapter needs which",
        "Chapter 01 leads to 02 and to 06. 02 leads to 03 and to 05. 03 leads to 04. Dashed: the gated branches of 05 need 03, and "
        "the last part of 06 needs 04 and 05. Hours: 01 two, 02 five, 03 four, 04 five, 05 six, 06 three. After 01 one may stop and "
        "know why attention can be a recurrence; after 02 one can read a kernel for Hopper; after 04 one knows when fusing pays.",
    )  # fmt: skip
    boxes = {
        "01": (10, 60, "a state", "2 h", "a"),
        "02": (210, 60, "chunks", "5 h", "a"),
        "03": (410, 60, "gates", "4 h", "a"),
        "04": (610, 60, "one kernel", "5 h", "a"),
        "05": (410, 200, "overwriting", "6 h", "b"),
        "06": (110, 200, "scans", "3 h", "c"),
    }
    for number, (x, y, name, hours, kind) in boxes.items():
        p.box(x, y, 140, 54, kind)
        p.text(x + 70, y + 23, f"{number} {name}", "middle bold")
        p.text(x + 70, y + 42, hours, "middle small")
    p.arrow((150, 87), (210, 87))
    p.arrow((350, 87), (410, 87))
    p.arrow((550, 87), (610, 87))
    p.arrow((130, 114), (130, 200))
    p.arrow((300, 114), (300, 227), (410, 227))
    p.arrow((480, 114), (480, 200), kind="line dashed")
    p.arrow((680, 114), (680, 278), (180, 278), (180, 254), kind="line dashed")
    p.line(480, 254, 480, 278, kind="line dashed")
    p.lines(84, 24, ["stop here and know why", "attention is a recurrence"], "middle small soft")
    p.lines(280, 24, ["stop here and read any", "kernel written for Hopper"], "middle small soft")
    p.lines(680, 24, ["stop here and know", "when fusing pays"], "middle small soft")
    p.text(10, 302, "solid: needed; dashed: needed only for branches, or for the last part", "small soft")
    return p


DRAWINGS = (way,)
