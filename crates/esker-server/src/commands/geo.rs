//! Geographic positions: members of sorted sets whose scores encode a cell of the map (`geo.rs`).

use std::ops::{Bound, ControlFlow};

use super::sorted_sets::store;
use crate::command::spec::Group::Geo;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{float, int, parse_float};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::geo::{GeoPosition, Shape};
use crate::types::{Scored, SortedSet, ZSpan};

const STORES: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("geoadd", -5, STORES, FIRST, Geo, "key [nx|xx] [ch] longitude latitude member ...", "Adds places, or moves them.", geoadd),
    command("geodist", -4, READ, FIRST, Geo, "key member other [m|km|ft|mi]", "Returns the distance between two places.", geodist),
    command("geohash", -2, READ, FIRST, Geo, "key [member ...]", "Returns the geohashes of places.", geohash),
    command("geopos", -2, READ, FIRST, Geo, "key [member ...]", "Returns the longitude and latitude of places.", geopos),
    command("georadius", -6, STORES, Keys::Stored(radius_to), Geo, "key longitude latitude radius m|km|ft|mi [withcoord] [withdist] [withhash] [count n [any]] [asc|desc] [store to|storedist to]", "Returns or stores the places near a point. GEOSEARCH can do more.", |cx, r| near(cx, r, &Form::RADIUS)).uses(Uses::STORE_SECOND),
    command("georadius_ro", -6, READ, FIRST, Geo, "key longitude latitude radius m|km|ft|mi [withcoord] [withdist] [withhash] [count n [any]] [asc|desc]", "Same as GEORADIUS, without STORE.", |cx, r| near(cx, r, &Form { stores: false, ..Form::RADIUS })),
    command("georadiusbymember", -5, STORES, Keys::Stored(radius_by_member_to), Geo, "key member radius m|km|ft|mi [withcoord] [withdist] [withhash] [count n [any]] [asc|desc] [store to|storedist to]", "Returns or stores the places near a member.", |cx, r| near(cx, r, &Form::BY_MEMBER)).uses(Uses::STORE_SECOND),
    command("georadiusbymember_ro", -5, READ, FIRST, Geo, "key member radius m|km|ft|mi [withcoord] [withdist] [withhash] [count n [any]] [asc|desc]", "Same as GEORADIUSBYMEMBER, without STORE.", |cx, r| near(cx, r, &Form { stores: false, ..Form::BY_MEMBER })),
    command("geosearch", -7, READ, FIRST, Geo, "key frommember member|fromlonlat longitude latitude byradius radius unit|bybox width height unit [asc|desc] [count n [any]] [withcoord] [withdist] [withhash]", "Returns the places in a circle or a box.", geosearch),
    command("geosearchstore", -8, STORES, FIRST_TWO, Geo, "to key frommember member|fromlonlat longitude latitude byradius radius unit|bybox width height unit [asc|desc] [count n [any]] [storedist]", "Stores the places in a circle or a box.", geosearchstore).uses(Uses::STORE_FIRST),
];

/// Returns the length of a unit in metres.
fn unit(word: &[u8]) -> Done<f64> {
    match word.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err("ERR unsupported unit provided. please use M, KM, FT, MI".into()),
    }
}

fn place(longitude: &[u8], latitude: &[u8]) -> Done<GeoPosition> {
    let (longitude, latitude) = (float(longitude)?, float(latitude)?);
    GeoPosition::new(longitude, latitude).ok_or_else(|| {
        Fail::text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
    })
}

/// A length that a search takes.
#[derive(Clone, Copy)]
enum Side {
    Radius,
    Width,
    Height,
}

impl Side {
    fn parse(self, word: &[u8]) -> Done<f64> {
        let (not_numeric, negative) = match self {
            Side::Radius => ("ERR need numeric radius", "ERR radius cannot be negative"),
            Side::Width => ("ERR need numeric width", "ERR height or width cannot be negative"),
            Side::Height => ("ERR need numeric height", "ERR height or width cannot be negative"),
        };
        let length = parse_float(word).filter(|length| !length.is_nan()).ok_or(not_numeric)?;
        if length < 0.0 { Err(negative.into()) } else { Ok(length) }
    }
}

fn place_of(cx: &mut Cx<'_>, key: &[u8], member: &[u8]) -> Done<Option<GeoPosition>> {
    match SortedSet::open(cx, key)? {
        Some(set) => Ok(set.score(cx, member)?.map(GeoPosition::of_score)),
        None => Ok(None),
    }
}

fn geoadd(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options =
        (2..request.len()).take_while(|at| ["nx", "xx", "ch"].iter().any(|word| request.is(*at, word)));
    let first = 2 + options.count();
    let places = request.len() - first;
    let has = |word: &str| (2..first).any(|at| request.is(at, word));
    if places == 0 || !places.is_multiple_of(3) || has("nx") && has("xx") {
        return Err(SYNTAX.into());
    }
    let mut words: Vec<Vec<u8>> =
        [b"zadd".as_slice()].into_iter().chain(request.from(1).take(first - 1)).map(<[u8]>::to_vec).collect();
    for at in (first..request.len()).step_by(3) {
        let score = place(&request[at], &request[at + 1])?.score();
        words.extend([format!("{score:.0}").into_bytes(), request[at + 2].to_vec()]);
    }
    super::sorted_sets::zadd(cx, &Request::of(words))
}

fn put_metres(cx: &mut Cx<'_>, metres: f64, unit: f64) {
    cx.out.bulk(format!("{:.4}", metres / unit).as_bytes());
}

fn put_place(cx: &mut Cx<'_>, place: GeoPosition) {
    cx.out.array(2);
    for degrees in [place.longitude, place.latitude] {
        let digits = format!("{degrees:.17}");
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        cx.out.double_of(digits);
    }
}

fn geodist(cx: &mut Cx<'_>, request: &Request) -> Done {
    let unit = match request.len() {
        4 => 1.0,
        5 => unit(&request[4])?,
        _ => return Err(SYNTAX.into()),
    };
    let places = (place_of(cx, &request[1], &request[2])?, place_of(cx, &request[1], &request[3])?);
    match places {
        (Some(from), Some(to)) => put_metres(cx, from.metres_to(to), unit),
        _ => cx.out.null(),
    }
    Ok(())
}

fn geohash(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut hashes = Vec::new();
    for member in request.from(2) {
        hashes.push(place_of(cx, &request[1], member)?.map(GeoPosition::geohash));
    }
    cx.out.array(hashes.len());
    hashes.iter().for_each(|hash| cx.out.bulk_or_null(hash.as_ref().map(String::as_bytes)));
    Ok(())
}

fn geopos(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut places = Vec::new();
    for member in request.from(2) {
        places.push(place_of(cx, &request[1], member)?);
    }
    cx.out.array(places.len());
    for place in places {
        match place {
            Some(place) => put_place(cx, place),
            None => cx.out.null_array(),
        }
    }
    Ok(())
}

/// The words that a variant of the search takes.
struct Form {
    /// Position of its first own word.
    from: usize,
    has_member: bool,
    stores: bool,
}

impl Form {
    const RADIUS: Form = Form { from: 6, has_member: false, stores: true };
    const BY_MEMBER: Form = Form { from: 5, has_member: true, stores: true };
}

/// What to search for, and what the reply contains.
#[derive(Default)]
struct Search {
    centre: Option<GeoPosition>,
    shape: Option<Shape>,
    /// Length of the unit in metres.
    unit: f64,
    order: Option<Order>,
    count: Option<usize>,
    any: bool,
    with_place: bool,
    with_distance: bool,
    with_cell: bool,
    /// Destination key, and whether to store distances.
    store: Option<(Vec<u8>, bool)>,
}

struct Found {
    member: Vec<u8>,
    score: f64,
    metres: f64,
}

impl Search {
    /// Parses a word that all variants accept. Returns how many words it took, or none if it is not one.
    fn option(&mut self, request: &Request, at: usize) -> Done<Option<usize>> {
        match request[at].to_ascii_lowercase().as_slice() {
            b"asc" => self.order = Some(Order::Up),
            b"desc" => self.order = Some(Order::Down),
            b"withcoord" => self.with_place = true,
            b"withdist" => self.with_distance = true,
            b"withhash" => self.with_cell = true,
            b"any" => self.any = true,
            b"count" if at + 1 < request.len() => {
                let count = int(&request[at + 1])?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                self.count = Some(count.ok_or("ERR COUNT must be > 0")?);
                return Ok(Some(2));
            }
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    fn check(&self, name: &str) -> Done {
        if self.any && self.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        if self.store.is_some() && (self.with_place || self.with_distance || self.with_cell) {
            let what = if name == "geosearchstore" { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Fail::text(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        Ok(())
    }

    fn find(&self, cx: &mut Cx<'_>, key: &[u8]) -> Done<Vec<Found>> {
        let (Some(set), Some(centre), Some(shape)) = (SortedSet::open(cx, key)?, self.centre, self.shape)
        else {
            return Ok(Vec::new());
        };
        let enough = if self.any { self.count.unwrap_or(usize::MAX) } else { usize::MAX };
        let (mut found, mut failed) = (Vec::new(), None);
        for (from, to) in shape.scores(centre) {
            let span = ZSpan::scores(Bound::Included(from), Bound::Excluded(to));
            set.walk(cx, &span, Order::Up, &mut |member, score| {
                if found.len() >= enough {
                    return ControlFlow::Break(());
                }
                if let Some(metres) = shape.finds(centre, GeoPosition::of_score(score)) {
                    if let Err(fail) = cx.gather(2 * member.len()) {
                        failed = Some(fail);
                        return ControlFlow::Break(());
                    }
                    found.push(Found { member: member.to_vec(), score, metres });
                }
                ControlFlow::Continue(())
            })?;
            failed.take().map_or(Ok(()), Err)?;
        }
        // A count selects the nearest members, unless ANY is given.
        let order = self.order.or(self.count.filter(|_| !self.any).map(|_| Order::Up));
        match order {
            Some(Order::Up) => found.sort_by(|a, b| a.metres.total_cmp(&b.metres)),
            Some(Order::Down) => found.sort_by(|a, b| b.metres.total_cmp(&a.metres)),
            None => {}
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        Ok(found)
    }

    fn run(&self, cx: &mut Cx<'_>, key: &[u8], event: &str) -> Done {
        let found = self.find(cx, key)?;
        if let Some((to, distances)) = &self.store {
            let score = |found: &Found| if *distances { found.metres / self.unit } else { found.score };
            let members: Vec<Scored> =
                found.iter().map(|found| (found.member.clone(), score(found))).collect();
            return store(cx, to, &members, event);
        }
        let details =
            [self.with_distance, self.with_cell, self.with_place].iter().filter(|asked| **asked).count();
        cx.out.array(found.len());
        for Found { member, score, metres } in found {
            if details > 0 {
                cx.out.array(1 + details);
            }
            cx.out.bulk(&member);
            if self.with_distance {
                put_metres(cx, metres, self.unit);
            }
            if self.with_cell {
                cx.out.int(score as i64);
            }
            if self.with_place {
                put_place(cx, GeoPosition::of_score(score));
            }
        }
        Ok(())
    }
}

const NO_MEMBER: &str = "ERR could not decode requested zset member";

/// Runs the variants of `GEORADIUS`.
fn near(cx: &mut Cx<'_>, request: &Request, form: &Form) -> Done {
    let mut search = Search { unit: 1.0, shape: Some(Shape::Circle(0.0)), ..Search::default() };
    // Like Redis, do not validate the member and the circle if the set does not exist.
    let is_there = !form.has_member || SortedSet::open(cx, &request[1])?.is_some();
    if is_there {
        search.centre = Some(match form.has_member {
            true => place_of(cx, &request[1], &request[2])?.ok_or(NO_MEMBER)?,
            false => place(&request[2], &request[3])?,
        });
        let radius = Side::Radius.parse(&request[form.from - 2])?;
        search.unit = unit(&request[form.from - 1])?;
        search.shape = Some(Shape::Circle(radius * search.unit));
    }
    let mut at = form.from;
    while at < request.len() {
        if let Some(words) = search.option(request, at)? {
            at += words;
        } else if form.stores
            && at + 1 < request.len()
            && (request.is(at, "store") || request.is(at, "storedist"))
        {
            search.store = Some((request[at + 1].to_vec(), request.is(at, "storedist")));
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    search.check("georadius")?;
    search.run(cx, &request[1], "georadiusstore")
}

/// Parses the words of `GEOSEARCH` from `first` on. The last occurrence of a word counts.
fn words(cx: &mut Cx<'_>, request: &Request, key: &[u8], first: usize, stores: bool) -> Done<Search> {
    let set = SortedSet::open(cx, key)?;
    let mut search = Search::default();
    let (mut has_member, mut has_place, mut is_circle, mut is_box) = (false, false, false, false);
    let mut at = first;
    while at < request.len() {
        let left = request.len() - at - 1;
        if let Some(words) = search.option(request, at)? {
            at += words;
        } else if request.is(at, "frommember") && left >= 1 && !has_place {
            if let Some(set) = &set {
                let score = set.score(cx, &request[at + 1])?.ok_or(NO_MEMBER)?;
                search.centre = Some(GeoPosition::of_score(score));
            }
            (has_member, at) = (true, at + 2);
        } else if request.is(at, "fromlonlat") && left >= 2 && !has_member {
            search.centre = Some(place(&request[at + 1], &request[at + 2])?);
            (has_place, at) = (true, at + 3);
        } else if request.is(at, "byradius") && left >= 2 && !is_box {
            let radius = Side::Radius.parse(&request[at + 1])?;
            search.unit = unit(&request[at + 2])?;
            search.shape = Some(Shape::Circle(radius * search.unit));
            (is_circle, at) = (true, at + 3);
        } else if request.is(at, "bybox") && left >= 3 && !is_circle {
            let width = Side::Width.parse(&request[at + 1])?;
            let height = Side::Height.parse(&request[at + 2])?;
            search.unit = unit(&request[at + 3])?;
            search.shape = Some(Shape::Box(width * search.unit, height * search.unit));
            (is_box, at) = (true, at + 4);
        } else if stores && request.is(at, "storedist") {
            search.store = Some((Vec::new(), true));
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let missing = match (has_member || has_place, is_circle || is_box) {
        (false, _) => "FROMMEMBER or FROMLONLAT",
        (_, false) => "BYRADIUS and BYBOX",
        _ => return Ok(search),
    };
    let name = String::from_utf8_lossy(&request[0]);
    Err(Fail::text(format!("ERR exactly one of {missing} can be specified for {name}")))
}

fn geosearch(cx: &mut Cx<'_>, request: &Request) -> Done {
    let search = words(cx, request, &request[1], 2, false)?;
    search.check("geosearch")?;
    search.run(cx, &request[1], "geosearch")
}

fn geosearchstore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut search = words(cx, request, &request[2], 3, true)?;
    let distances = search.store.take().is_some();
    search.store = Some((request[1].to_vec(), distances));
    search.check("geosearchstore")?;
    search.run(cx, &request[2], "geosearchstore")
}
