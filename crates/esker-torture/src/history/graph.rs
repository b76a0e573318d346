//! Cycles in a graph of transactions, as isolation levels forbid them.
//!
//! ```text
//!   nodes, edges (ww, wr, rw, time) --levels--> a shortest cycle, or none
//! ```
//!
//! graph.1. A history is snapshot isolated only if every cycle of its dependencies has two rw edges in a row (Cerone and
//!      Gotsman, "Analysing snapshot isolation", 2018). So the search is for cycles without two in a row: over pairs
//!      of a node and whether the edge into it was rw.

use std::collections::{HashMap, VecDeque};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edge {
    /// It wrote the version before the other's.
    Ww,
    /// The other read what it wrote.
    Wr,
    /// It read the version before the other's.
    Rw,
    /// It ended before the other began.
    Time,
}

/// Nodes are numbers; edges point to what comes later.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: Vec<Vec<(usize, Edge)>>,
}

/// A node and whether the edge into it was rw.
type State = usize;

impl Graph {
    /// A graph of so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Graph { edges: vec![Vec::new(); nodes] }
    }

    /// One more node.
    pub(crate) fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    pub(crate) fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to && !self.edges[from].contains(&(to, edge)) {
            self.edges[from].push((to, edge));
        }
    }

    fn next(&self, state: State, allowed: &[Edge]) -> impl Iterator<Item = (State, Edge)> {
        let after_rw = state % 2 == 1;
        let fits = move |edge: Edge| allowed.contains(&edge) && !(after_rw && edge == Edge::Rw);
        let edges = self.edges[state / 2].iter().filter(move |(_, edge)| fits(*edge));
        edges.map(|&(to, edge)| (2 * to + usize::from(edge == Edge::Rw), edge))
    }

    /// A cycle of the allowed edges without two rw edges in a row: its nodes, each with the edge to the next.
    pub(crate) fn cycle(&self, allowed: &[Edge]) -> Option<Vec<(usize, Edge)>> {
        let component = self.components(allowed);
        let mut sizes: HashMap<usize, usize> = HashMap::new();
        component.iter().for_each(|c| *sizes.entry(*c).or_default() += 1);
        // The shortest of some cycles is easier to read than the first.
        let on_cycles = (0..component.len()).filter(|state| sizes[&component[*state]] > 1).take(200);
        on_cycles.filter_map(|state| self.cycle_through(state, allowed, &component)).min_by_key(Vec::len)
    }

    fn cycle_through(
        &self,
        start: State,
        allowed: &[Edge],
        component: &[usize],
    ) -> Option<Vec<(usize, Edge)>> {
        let mut came: HashMap<State, (State, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            for (to, edge) in self.next(state, allowed) {
                if component[to] != component[start] || came.contains_key(&to) {
                    continue;
                }
                came.insert(to, (state, edge));
                if to == start {
                    let mut cycle = Vec::new();
                    let mut at = start;
                    loop {
                        let (from, edge) = came[&at];
                        cycle.push((from / 2, edge));
                        at = from;
                        if at == start {
                            cycle.reverse();
                            return Some(cycle);
                        }
                    }
                }
                queue.push_back(to);
            }
        }
        None
    }

    /// The strongly connected component of each state (Tarjan, without recursion).
    fn components(&self, allowed: &[Edge]) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let n = 2 * self.edges.len();
        let (mut index, mut low, mut component) = (vec![NEW; n], vec![0; n], vec![NEW; n]);
        let mut stack = Vec::new();
        let mut count = 0;
        for root in 0..n {
            if index[root] != NEW {
                continue;
            }
            let mut work: Vec<(State, Vec<State>)> = Vec::new();
            let mut enter = Some(root);
            loop {
                if let Some(state) = enter.take() {
                    index[state] = count;
                    low[state] = count;
                    count += 1;
                    stack.push(state);
                    work.push((state, self.next(state, allowed).map(|(to, _)| to).collect()));
                }
                let Some((state, to_visit)) = work.last_mut() else { break };
                let state = *state;
                match to_visit.pop() {
                    Some(to) if index[to] == NEW => enter = Some(to),
                    Some(to) if component[to] == NEW => low[state] = low[state].min(index[to]),
                    Some(_) => {}
                    None => {
                        work.pop();
                        if let Some((parent, _)) = work.last() {
                            low[*parent] = low[*parent].min(low[state]);
                        }
                        if low[state] == index[state] {
                            while let Some(member) = stack.pop() {
                                component[member] = state;
                                if member == state {
                                    break;
                                }
                            }
                        }
                    }
                }
            }
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Edge::{Rw, Time, Wr, Ww};

    fn cycle(edges: &[(usize, usize, Edge)], allowed: &[Edge]) -> Option<usize> {
        let mut graph = Graph::new(10);
        edges.iter().for_each(|&(from, to, edge)| graph.add(from, to, edge));
        graph.cycle(allowed).map(|cycle| cycle.len())
    }

    #[test]
    fn graph_1_two_antidependencies_in_a_row_are_allowed_others_not() {
        let all = [Ww, Wr, Rw, Time];
        assert_eq!(cycle(&[(0, 1, Ww), (1, 2, Wr)], &all), None);
        assert_eq!(cycle(&[(0, 1, Ww), (1, 0, Ww)], &all), Some(2));
        assert_eq!(cycle(&[(0, 1, Rw), (1, 0, Rw)], &all), None, "write skew");
        assert_eq!(cycle(&[(0, 1, Rw), (1, 0, Wr)], &all), Some(2));
        assert_eq!(cycle(&[(0, 1, Rw), (1, 2, Wr), (2, 3, Rw), (3, 0, Wr)], &all), Some(4), "long fork");
        assert_eq!(cycle(&[(0, 1, Rw), (1, 2, Rw), (2, 0, Wr)], &all), None);
        assert_eq!(cycle(&[(0, 1, Rw), (1, 2, Time), (2, 0, Time)], &[Ww, Wr, Rw]), None);
        assert_eq!(cycle(&[(0, 1, Rw), (1, 2, Time), (2, 0, Time)], &all), Some(3));
    }

    #[test]
    fn the_shortest_cycle_is_shown() {
        let ring = (0..9).map(|i| (i, i + 1, Ww)).chain([(9, 0, Ww), (4, 3, Wr)]).collect::<Vec<_>>();
        assert_eq!(cycle(&ring, &[Ww]), Some(10));
        assert_eq!(cycle(&ring, &[Ww, Wr]), Some(2));
    }
}
