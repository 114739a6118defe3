//! No modules of a crate use each other in a circle.
//!
//! [`super::module_graph`] defines what counts as a module and as a use. Of tangled modules, the shortest circle is
//! shown; when it is gone, the next one is shown.

use super::module_graph::{self, ModuleGraph, shown};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let graphs = module_graph::packages(tree).filter_map(|folder| module_graph::of_package(tree, folder));
    graphs.flat_map(|graph| circles(&graph)).collect()
}

fn circles(graph: &ModuleGraph) -> Vec<Finding> {
    let mut neighbours: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in graph.uses.keys() {
        neighbours.entry(from).or_default().push(to);
    }
    let mut shortest: Vec<Vec<&str>> = graph.files.keys().filter_map(|module| circle(&neighbours, module)).collect();
    // Circles of one length stay in the order of their first modules.
    shortest.sort_by_key(Vec::len);
    let mut told = BTreeSet::new();
    let mut findings = Vec::new();
    for circle in shortest {
        if circle.iter().any(|module| told.contains(module)) {
            continue;
        }
        let forth = reached(circle[0], |module| neighbours.get(module).cloned().unwrap_or_default());
        let tangled = forth.into_iter().filter(|module| {
            *module == circle[0]
                || reached(module, |module| neighbours.get(module).cloned().unwrap_or_default()).contains(circle[0])
        });
        let tangled: Vec<&str> = tangled.collect();
        findings.extend(finding(graph, &circle, tangled.len()));
        told.extend(tangled);
    }
    findings
}

/// The shortest way from `start` back to it, without the end.
fn circle<'a>(neighbours: &BTreeMap<&'a str, Vec<&'a str>>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(module) = waiting.pop_front() {
        for &next in neighbours.get(module).into_iter().flatten() {
            if next == start {
                let mut way = vec![module];
                while let Some(&previous) = way.last().and_then(|module| before.get(module)) {
                    way.push(previous);
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(next) {
                before.insert(next, module);
                waiting.push_back(next);
            }
        }
    }
    None
}

fn reached<'a>(start: &'a str, neighbours: impl Fn(&str) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([start]);
    let mut waiting = vec![start];
    while let Some(module) = waiting.pop() {
        waiting.extend(neighbours(module).into_iter().filter(|next| reached.insert(next)));
    }
    reached
}

fn finding(graph: &ModuleGraph, circle: &[&str], tangled: usize) -> Option<Finding> {
    let followers = circle.iter().cycle().skip(1);
    let edges: Vec<_> = circle
        .iter()
        .zip(followers)
        .filter_map(|(&from, &to)| graph.uses.get(&(from.into(), to.into())).map(|place| (from, place)))
        .collect();
    let (_, first) = edges.first()?;
    let names: Vec<&str> = circle.iter().chain(circle.first()).map(|module| shown(module)).collect();
    let more = if tangled > circle.len() { format!(" ({tangled} modules are tangled)") } else { String::new() };
    let places = edges
        .iter()
        .map(|(from, place)| format!("{} names `{}` ({}:{})", shown(from), place.written, place.path, place.line));
    let places = places.collect::<Vec<_>>().join("\n    ");
    let what = format!("modules use each other: {}{more}", names.join(" -> "));
    let advice = format!("{places}\n    move what they share into a module below them, or hand it in from above");
    Some(Finding::error(&first.path, first.line, what, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::places;

    const ROOT: &str = "mod a; mod b; mod c; mod d; pub use a::A;";

    fn found(folder: &str, [a, b, c, d]: [&str; 4]) -> Vec<Finding> {
        let path = |file: &str| format!("{folder}/{file}");
        check(&Tree::of([
            (&path("Cargo.toml"), ""),
            (&path("src/lib.rs"), ROOT),
            (&path("src/a.rs"), a),
            (&path("src/b/mod.rs"), b),
            (&path("src/c.rs"), c),
            (&path("src/d.rs"), d),
        ]))
    }

    #[test]
    fn modules_in_order_are_fine() {
        let files = ["use crate::b::B; use crate::d::D;", "use crate::c;\nfn f() { c::g() }", "use crate::d::D;", ""];
        assert!(found("crates/x", files).is_empty());
    }

    #[test]
    fn a_circle_is_shown_with_its_places() {
        let findings = found("crates/x", ["use crate::b::B;", "\nfn f() { crate::c::g() }", "use crate::A;", ""]);
        assert_eq!(places(&findings), ["crates/x/src/a.rs:1"]);
        assert_eq!(findings[0].what, "modules use each other: a -> b -> c -> a");
        let Finding { advice, .. } = &findings[0];
        for place in
            ["a names `crate::b::B` (crates/x/src/a.rs:1)", "(crates/x/src/b/mod.rs:2)", "(crates/x/src/c.rs:1)"]
        {
            assert!(advice.contains(place), "{advice}");
        }
    }

    #[test]
    fn of_a_tangle_the_shortest_circle_is_shown() {
        let files = ["use crate::b::B;", "use crate::c::C;", "use crate::{A, d::D};", "use crate::c::C;"];
        let findings = found("xtask", files);
        assert_eq!(places(&findings), ["xtask/src/c.rs:1"]);
        assert_eq!(findings[0].what, "modules use each other: c -> d -> c (4 modules are tangled)");
    }

    #[test]
    fn two_circles_that_do_not_touch_are_two_findings() {
        let files = ["use crate::b::B;", "use crate::A;", "use crate::d::D;", "use crate::c::C;"];
        assert_eq!(found("crates/x", files).len(), 2);
    }
}
