//! Which addresses a download may reach: those of the public internet and no others.
//!
//! Whoever writes a payload must not be able to make the worker talk to itself, to its neighbours or to the metadata
//! service of its cloud. So this is a list of what is public, and everything else is refused: an address range that
//! nobody thought of is private. Addresses that carry an IPv4 address inside (mapped, NAT64, 6to4, ISATAP) count as
//! what they carry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of IPv4 that do not lead to a host of the public internet: IANA's registry of special purposes, all of
/// multicast and all of what is reserved.
const V4_SPECIAL: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Whether an address is one of the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    V4_SPECIAL.iter().all(|(network, bits)| {
        let mask = u32::MAX << (32 - bits);
        address.to_bits() & mask != network.to_bits()
    })
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let part = address.segments();
    let inside = |at: usize| {
        let bits = u32::from(part[at]) << 16 | u32::from(part[at + 1]);
        is_public_v4(Ipv4Addr::from_bits(bits))
    };
    match part {
        // ::ffff:0:0/96, an IPv4 address in other clothes; 64:ff9b::/96, the same behind a NAT64.
        [0, 0, 0, 0, 0, 0xFFFF, ..] | [0x64, 0xFF9B, 0, 0, 0, 0, ..] => inside(6),
        // 6to4.
        [0x2002, ..] => inside(1),
        // What IANA has set apart at the beginning of 2001::/16 (Teredo, benchmarks, ORCHID) and for documentation.
        [0x2001, 0..=0x01FF | 0x0DB8, ..] | [0x3FFF, 0..=0x0FFF, ..] => false,
        // ISATAP, in any network.
        [_, _, _, _, 0 | 0x0200, 0x5EFE, ..] => (0x2000..=0x3FFF).contains(&part[0]) && inside(6),
        // Only this eighth of the space is given out to hosts of the internet.
        [first, ..] => (0x2000..=0x3FFF).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn hosts_of_the_internet_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "223.255.255.254",
            "2606:4700:4700::1111",
            "2001:200::1",
            "2a00:1450:4001::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(public(text), "{text} is public");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::1",
            "2a00:1450::5efe:127.0.0.1",
            "2a00:1450::200:5efe:10.0.0.1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fe80::5efe:1.1.1.1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public(text), "{text} is not public");
        }
    }
}
