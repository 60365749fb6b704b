"""Graphs of lineage, as they are drawn node by node."""

from __future__ import annotations

from detlab.schemas.wire.registry import LineageEdge, LineageGraph, LineageNode


class LineageDrawing:
    """A graph that grows; a node or an edge that is there already is not drawn again."""

    def __init__(self) -> None:
        self.nodes: dict[str, LineageNode] = {}
        self.edges: list[LineageEdge] = []

    def graph(self) -> LineageGraph:
        """Return what was drawn."""
        return LineageGraph(nodes=list(self.nodes.values()), edges=self.edges)

    def node(self, kind: str, name: str, detail: str = "", *, label: str = "") -> str:
        """Draw a node; return its id.

        Args:
            kind: Of what, see `LineageNode`.
            name: Unique among those of its kind.
            detail: What is said beside it.
            label: What it is called; empty: by its name.
        """
        key = f"{kind}:{name}"
        label = label or (name if kind in {"version", "data", "artifact"} else f"{kind} {name}")
        self.nodes.setdefault(key, LineageNode(id=key, kind=kind, label=label, detail=detail))
        return key

    def edge(self, source: str, target: str, label: str) -> None:
        """Draw an edge: `source` was made from, by or with `target`."""
        made = LineageEdge(source=source, target=target, label=label)
        if made not in self.edges:
            self.edges.append(made)
