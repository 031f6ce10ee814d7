"""A balanced search tree of timers, with its minimum at hand: the place of nginx's and hrtimers' red-black trees.

Facts      A search tree gives START, a move and extract in O(log n) at any pattern of keys. nginx's event timers and
           Linux's high resolution timers use red-black trees; hrtimers keep the leftmost node cached, because the
           check asks for nothing else (timerqueue.c).
Hazard     Red-black deletion has six cases, each with its mirror image: much code that rarely runs.
Answer     A treap (Aragon and Seidel, FOCS 1989): a search tree by `(key, order)` that is also a heap by random
           priorities. Its shape is that of a tree whose timers were inserted in random order, whatever the real order:
           expected depth 1.39 log2 n. Insertion splits one subtree, deletion merges two; there are no cases.
Cost       START, move and extract O(log n), expected. STOP O(1) lazily, check O(1). A sweep takes O(log n) per zombie.
           A node per timer: more memory and more cache misses than a heap's two lists.

A moved timer is found by its rank. `timer.order` is new by then, so `timer.index` keeps the order it was filed with.
"""

from __future__ import annotations

from typing import Final

from .scheme import Scheme, unfile
from .timer import INF, Timer

# Park and Miller's "minimal standard" generator (CACM 31(10), 1988). The shape of the tree needs no better one, and
# the same program builds the same tree every time.
MULTIPLIER: Final = 48271
MODULUS: Final = 2147483647  # 2**31 - 1


class Node:
    """One timer's place: everything in `left` ranks below it, everything in `right` above."""

    __slots__ = ("key", "left", "order", "priority", "right", "timer")

    def __init__(self, timer: Timer, key: float, priority: int) -> None:
        self.timer: Timer = timer
        self.key: float = key
        self.order: int = timer.order
        # not below any priority under it
        self.priority: int = priority
        self.left: Node | None = None
        self.right: Node | None = None


class Tree(Scheme):
    """A treap. `timer.index` is the order that the timer was filed with."""

    __slots__ = ("_first", "_random", "_root", "_size")

    def __init__(self) -> None:
        super().__init__()
        self._root: Node | None = None
        # the leftmost node
        self._first: Node | None = None
        self._size: int = 0
        self._random: int = 1

    def __len__(self) -> int:
        return self._size

    def wake_time(self) -> float:
        return INF if self._first is None else self._first.key

    def first(self) -> Timer:
        assert self._first is not None
        return self._first.timer

    def due(self, now: float) -> Timer | None:
        first = self._first
        return first.timer if first is not None and first.key <= now else None

    def file(self, timer: Timer, key: float) -> None:
        if timer.index >= 0:
            self._delete(timer)
        self._random = self._random * MULTIPLIER % MODULUS
        node = Node(timer, key, self._random)
        timer.key = key
        timer.index = timer.order
        self._insert(node)
        if self._first is None or _below(key, node.order, self._first):
            self._first = node
        self._size += 1

    def remove_first(self) -> Timer:
        timer = self.first()
        self._delete(timer)
        timer.key = INF
        timer.index = -1
        return timer

    def sweep(self) -> int:
        zombies = [timer for timer in self._in_order() if timer.when == INF]
        for timer in zombies:
            self._delete(timer)
        unfile(zombies)
        return len(zombies)

    def clear(self) -> list[Timer]:
        stored = self._in_order()
        self._root = None
        self._first = None
        self._size = 0
        unfile(stored)
        return stored

    def _insert(self, node: Node) -> None:
        """Descend to the first node of a lower priority, and split what is there."""
        parent: Node | None = None
        tree = self._root
        while tree is not None and tree.priority >= node.priority:
            parent = tree
            tree = tree.left if _below(node.key, node.order, tree) else tree.right
        _split(tree, node)
        self._hang(parent, node.key, node.order, node)

    def _delete(self, timer: Timer) -> None:
        """Descend to the node, and merge what is under it."""
        key = timer.key
        order = timer.index
        parent: Node | None = None
        tree = self._root
        assert tree is not None
        while tree.order != order:
            parent = tree
            tree = tree.left if _below(key, order, tree) else tree.right
            assert tree is not None
        self._hang(parent, key, order, _merged(tree.left, tree.right))
        self._size -= 1
        if self._first is not None and self._first.timer is timer:
            self._first = _leftmost(self._root)

    def _hang(self, parent: Node | None, key: float, order: int, tree: Node | None) -> None:
        """Put `tree` under `parent`, on the side of this rank; or at the root."""
        if parent is None:
            self._root = tree
        elif _below(key, order, parent):
            parent.left = tree
        else:
            parent.right = tree

    def _in_order(self) -> list[Timer]:
        timers: list[Timer] = []
        path: list[Node] = []
        node = self._root
        while node is not None or path:
            while node is not None:
                path.append(node)
                node = node.left
            top = path.pop()
            timers.append(top.timer)
            node = top.right
        return timers


def _below(key: float, order: int, node: Node) -> bool:
    """Return True if `(key, order)` ranks below `node`."""
    return key < node.key or (key == node.key and order < node.order)


def _leftmost(node: Node | None) -> Node | None:
    while node is not None and node.left is not None:
        node = node.left
    return node


def _split(tree: Node | None, node: Node) -> None:
    """Put what ranks below `node` to its left and all else to its right, in one descent.

    `low` and `high` are the nodes under which the next piece of either side belongs.
    """
    low = node
    high = node
    while tree is not None:
        if _below(node.key, node.order, tree):
            if high is node:
                node.right = tree
            else:
                high.left = tree
            high = tree
            tree = tree.left
        else:
            if low is node:
                node.left = tree
            else:
                low.right = tree
            low = tree
            tree = tree.right
    if low is not node:
        low.right = None
    if high is not node:
        high.left = None


def _merged(low: Node | None, high: Node | None) -> Node | None:
    """Merge two trees, where all of `low` ranks below all of `high`. The expected depth is O(log n)."""
    if low is None:
        return high
    if high is None:
        return low
    if low.priority > high.priority:
        low.right = _merged(low.right, high)
        return low
    high.left = _merged(low, high.left)
    return high
