//! Which servers a run needs, and where each comes from.

use super::kind::Kind;
use crate::docker::image::Image;

#[derive(Debug)]
pub(crate) enum Source {
    /// The environment names it.
    Given(String),
    /// A private process of a program of this machine.
    Local,
    Image(&'static Image),
}

#[derive(Debug)]
pub(crate) struct Plan {
    sources: Vec<(Kind, Source)>,
    /// Whether the tests are run that start servers of their own.
    faults: bool,
}

/// The package that needs none of the servers, but their programs.
pub(crate) const FAULT_TESTS: &str = "distlock-fault-tests";

impl Plan {
    /// Every server: as a process, or where the program is not to be had on Debian, in a container.
    pub(crate) fn usual() -> Self {
        Self::of(|kind| match kind {
            Kind::Mysql if !kind.is_installed() => Source::Image(Image::usual(kind)),
            _ => Source::Local,
        })
    }

    /// Every server in a container.
    pub(crate) fn containers() -> Self {
        Self {
            faults: false,
            ..Self::of(|kind| Source::Image(Image::usual(kind)))
        }
    }

    /// Not where servers run in containers: nobody may have installed their programs.
    pub(crate) fn has_fault_tests(&self) -> bool {
        self.faults
    }

    /// Without the servers that the tests of these packages do not need.
    pub(crate) fn for_packages(mut self, packages: &[String]) -> Self {
        let needs = |package: &String, kind: Kind| match package.as_str() {
            "distlock-api" | "distlock-conformance" | "distlock-sqlite" | "xtask" => false,
            "distlock-test-servers" | "distlock-clock-shim" | FAULT_TESTS => false,
            "distlock-mysql" | "distlock-postgres" | "distlock-redis" => {
                kind.tested_by() == package
            }
            _ => true,
        };
        if !packages.is_empty() {
            self.sources
                .retain(|(kind, _)| packages.iter().any(|package| needs(package, *kind)));
            self.faults = packages.iter().any(|package| package == FAULT_TESTS);
        }
        self
    }

    /// The servers that the tests of one backend need, in containers, with this image among them.
    pub(crate) fn around(image: &'static Image) -> Self {
        let source = |kind: Kind| match kind == image.kind {
            true => Source::Image(image),
            false => Source::Image(Image::usual(kind)),
        };
        let kinds = image.kind.tested_with().iter();
        Self {
            sources: kinds.map(|kind| (*kind, source(*kind))).collect(),
            faults: false,
        }
    }

    fn of(choose: impl Fn(Kind) -> Source) -> Self {
        let source = |kind: Kind| kind.given_url().map_or_else(|| choose(kind), Source::Given);
        Self {
            sources: Kind::ALL.map(|kind| (kind, source(kind))).into(),
            faults: true,
        }
    }

    pub(super) fn source(&self, kind: Kind) -> Option<&Source> {
        let mut sources = self.sources.iter();
        let (_, source) = sources.find(|(of, _)| *of == kind)?;
        Some(source)
    }

    pub(super) fn given_url(&self, kind: Kind) -> Option<&str> {
        match self.source(kind)? {
            Source::Given(url) => Some(url),
            _ => None,
        }
    }

    pub(crate) fn images(&self) -> impl Iterator<Item = &'static Image> {
        self.sources.iter().filter_map(|(_, source)| match source {
            Source::Image(image) => Some(*image),
            _ => None,
        })
    }

    pub(crate) fn needs_docker(&self) -> bool {
        self.images().next().is_some()
    }

    /// The servers whose programs must be on this machine.
    pub(crate) fn local(&self) -> impl Iterator<Item = Kind> {
        let is_local = |kind| matches!(self.source(kind), Some(Source::Local));
        let for_faults = |kind| self.faults && Kind::WITH_FAULTS.contains(&kind);
        let mut kinds = Kind::ALL.to_vec();
        kinds.retain(|kind| is_local(*kind) || for_faults(*kind));
        kinds.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::image::by_name;

    /// The servers left of all, for these packages.
    fn kinds(packages: &[&str]) -> Vec<Kind> {
        let packages: Vec<_> = packages.iter().map(|name| (*name).to_owned()).collect();
        let sources = Kind::ALL.map(|kind| (kind, Source::Local)).into();
        let faults = true;
        let plan = Plan { sources, faults }.for_packages(&packages);
        plan.sources.into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn a_backend_needs_its_own_servers_only() {
        assert_eq!(kinds(&["distlock-redis"]), [Kind::Redis]);
        let both = ["distlock-redis", "distlock-mysql"];
        assert_eq!(kinds(&both), [Kind::Redis, Kind::Mariadb, Kind::Mysql]);
        assert_eq!(kinds(&["distlock-sqlite"]), []);
    }

    #[test]
    fn everything_else_needs_them_all() {
        assert_eq!(kinds(&[]), Kind::ALL);
        assert_eq!(kinds(&["distlock-sqlite", "distlock"]), Kind::ALL);
    }

    #[test]
    fn the_fault_tests_need_programs_and_no_servers() {
        let plan = Plan::usual().for_packages(&[FAULT_TESTS.to_owned()]);
        assert!(plan.has_fault_tests() && plan.sources.is_empty());
        assert!(plan.local().eq(Kind::WITH_FAULTS));
        assert!(!Plan::containers().has_fault_tests());
    }

    #[test]
    fn an_image_is_tried_among_the_usual_ones() {
        let old = by_name("pgbouncer-1.18").unwrap();
        let names: Vec<_> = Plan::around(old).images().map(Image::name).collect();
        assert_eq!(names, [Image::usual(Kind::Postgres).name(), old.name()]);
    }
}
