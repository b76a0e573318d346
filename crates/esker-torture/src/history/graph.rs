//! Finds cycles in a graph of transactions that isolation levels forbid.
//!
//! ```text
//!   nodes, edges (ww, wr, rw, time) --levels--> a shortest cycle, or none
//! ```
//!
//! A history is snapshot isolated only if every cycle of its dependencies contains two consecutive rw edges
//! (Cerone and Gotsman, "Analysing snapshot isolation", 2018). So the search looks for cycles without two
//! consecutive ones, over pairs of a node and whether the edge into it was rw.
//!
//! - Two consecutive rw edges are also forbidden if the transaction between them is serializable. A
//!   transaction has two events, its beginning and its commit. An rw edge leads from the beginning of a
//!   snapshot isolated transaction, or from the commit of a serializable one, to the commit of the other;
//!   all other edges lead from a commit to a beginning. The order of these events must have no cycle. If
//!   all transactions are serializable, every cycle is forbidden.

use std::collections::{HashMap, VecDeque};

/// Why one transaction precedes another.
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
    /// Whether each node is a serializable transaction.
    serializable: Vec<bool>,
}

/// A node and whether the edge into it was rw.
type State = usize;

impl Graph {
    /// Creates a graph with this number of nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Graph { edges: vec![Vec::new(); nodes], serializable: vec![false; nodes] }
    }

    /// Adds a node.
    pub(crate) fn add_node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.serializable.push(false);
        self.edges.len() - 1
    }

    /// Marks a node as serializable: what it has read is unchanged when it commits.
    pub(crate) fn set_serializable(&mut self, node: usize) {
        self.serializable[node] = true;
    }

    pub(crate) fn add(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to && !self.edges[from].contains(&(to, edge)) {
            self.edges[from].push((to, edge));
        }
    }

    fn next(&self, state: State, allowed: &[Edge]) -> impl Iterator<Item = (State, Edge)> {
        let is_second = state % 2 == 1 && !self.serializable[state / 2];
        let fits = move |edge: Edge| allowed.contains(&edge) && !(is_second && edge == Edge::Rw);
        let edges = self.edges[state / 2].iter().filter(move |(_, edge)| fits(*edge));
        edges.map(|&(to, edge)| (2 * to + usize::from(edge == Edge::Rw), edge))
    }

    /// Returns a forbidden cycle of the allowed edges: its nodes, each with the edge to the next
    /// one.
    pub(crate) fn cycle(&self, allowed: &[Edge]) -> Option<Vec<(usize, Edge)>> {
        let component = self.components(allowed);
        let mut sizes: HashMap<usize, usize> = HashMap::new();
        component.iter().for_each(|c| *sizes.entry(*c).or_default() += 1);
        // The shortest of several cycles is easier to read.
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

    /// Computes the strongly connected component of each state (Tarjan's algorithm without recursion).
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
        cycle_with(&[], edges, allowed)
    }

    fn cycle_with(serializable: &[usize], edges: &[(usize, usize, Edge)], allowed: &[Edge]) -> Option<usize> {
        let mut graph = Graph::new(10);
        serializable.iter().for_each(|node| graph.set_serializable(*node));
        edges.iter().for_each(|&(from, to, edge)| graph.add(from, to, edge));
        graph.cycle(allowed).map(|cycle| cycle.len())
    }

    #[test]
    fn two_antidependencies_in_a_row_are_allowed_others_not() {
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
    fn two_antidependencies_in_a_row_are_forbidden_around_a_serializable_transaction() {
        let skew = [(0, 1, Rw), (1, 0, Rw)];
        assert_eq!(cycle_with(&[0, 1], &skew, &[Rw]), Some(2));
        // The snapshot isolated one may precede what it has not seen.
        assert_eq!(cycle_with(&[1], &skew, &[Rw]), None);
        // 0 has not seen 1, which has not seen 2, whose writes 0 has seen: the read-only anomaly.
        let read_only = [(0, 1, Rw), (1, 2, Rw), (2, 0, Wr)];
        assert_eq!(cycle_with(&[1], &read_only, &[Wr, Rw]), Some(3));
        assert_eq!(cycle_with(&[0, 2], &read_only, &[Wr, Rw]), None);
        let three = [(0, 1, Rw), (1, 2, Rw), (2, 0, Rw)];
        assert_eq!(cycle_with(&[0, 1, 2], &three, &[Rw]), Some(3));
        assert_eq!(cycle_with(&[0, 1], &three, &[Rw]), None);
    }

    #[test]
    fn the_shortest_cycle_is_shown() {
        let ring = (0..9).map(|i| (i, i + 1, Ww)).chain([(9, 0, Ww), (4, 3, Wr)]).collect::<Vec<_>>();
        assert_eq!(cycle(&ring, &[Ww]), Some(10));
        assert_eq!(cycle(&ring, &[Ww, Wr]), Some(2));
    }
}
