#!/bin/sh
# Installs stager @VERSION@ for one user, from the directory that this file is in or from an address:
#
#     sh install.sh
#     curl -fsSL https://example.com/stager/install.sh | sh -s -- --from https://example.com/stager
#
# --to DIR installs into DIR; the default is ~/.local/bin. The archive is compared with the sum below
# before anything is written to DIR, and the binary gets its name there in one step. Two links beside
# it make it a plugin of kubectl.
set -eu

version='@VERSION@'
sums='@SUMS@'

fail() {
  printf 'install.sh: %s\n' "$1" >&2
  exit 1
}

# writable DIR: whether files can be created in DIR, or in the nearest directory above that exists.
writable() {
  dir=$1
  while [ ! -e "$dir" ] && [ ! -L "$dir" ]; do dir=$(dirname -- "$dir"); done
  [ -d "$dir" ] && [ -w "$dir" ] && [ -x "$dir" ]
}

# fetch NAME: copies a file of the release into the temporary directory.
fetch() {
  case $from in
  http://* | https://*)
    if command -v curl >/dev/null; then
      curl -fsSL -o "$tmp/$1" "${from%/}/$1"
    elif command -v wget >/dev/null; then
      wget -q -O "$tmp/$1" "${from%/}/$1"
    else
      fail 'neither curl nor wget is installed; install one, or download the release and run sh install.sh in it'
    fi || fail "cannot download ${from%/}/$1; check the address and the network"
    ;;
  *)
    [ -f "$from/$1" ] || fail "$from has no $1; run install.sh in the directory of the release, or name it with --from DIR or --from URL"
    cp -- "$from/$1" "$tmp/$1" || fail "cannot copy $from/$1 to $tmp"
    ;;
  esac
}

# sha256 FILE: prints its sum, or nothing. macOS has shasum.
sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1" 2>/dev/null; fi | cut -d' ' -f1
}

# link NAME: gives stager another name in its directory, unless something else has it.
link() {
  if [ -e "$to/$1" ] || [ -L "$to/$1" ]; then
    [ "$(readlink "$to/$1" 2>/dev/null || true)" = stager ] || { printf '%s is not a link to stager, and was left as it is\n' "$to/$1" && return; }
  else
    ln -s stager "$to/$1" 2>/dev/null || { printf 'cannot create the link %s, so kubectl does not find its plugin there\n' "$to/$1" && return; }
  fi
  links="$links $to/$1"
}

main() {
  from='' to=${HOME:-}/.local/bin
  while [ $# -gt 0 ]; do
    case $1 in
    --from | --to) [ $# -gt 1 ] && [ -n "$2" ] || fail "$1 needs a value" ;;
    esac
    case $1 in
    --from) from=$2 && shift 2 ;;
    --to) to=$2 && shift 2 ;;
    *) fail "unknown argument $1; use --from DIR, --from URL or --to DIR" ;;
    esac
  done
  case $0 in
  *install.sh) [ -n "$from" ] || from=$(dirname -- "$0") ;;
  esac
  [ -n "$from" ] || fail 'the source is unknown when the script is read from a pipe; name it with --from URL'
  [ "$to" != /.local/bin ] || fail 'HOME is not set; name a directory with --to DIR'
  case $to in
  /*) ;;
  *) to=$PWD/$to ;;
  esac

  case $(uname -s)/$(uname -m) in
  Linux/x86_64 | Linux/amd64) platform=linux_amd64 ;;
  Linux/aarch64 | Linux/arm64) platform=linux_arm64 ;;
  Darwin/arm64) platform=darwin_arm64 ;;
  *) fail "no binary for $(uname -s) on $(uname -m); stager runs on Linux on x86_64 and aarch64, and in part on macOS on arm64" ;;
  esac
  archive=stager_${version}_$platform.tar.gz
  sum=$(printf '%s\n' "$sums" | sed -n "s/  $archive\$//p")
  [ -n "$sum" ] || fail "this release has no binary for $platform"

  writable "$to" || fail "no permission to write to $to; choose another directory with --to DIR"
  [ ! -d "$to/stager" ] || fail "$to/stager is a directory; choose another directory with --to DIR"
  before=''
  if [ -e "$to/stager" ]; then
    before=$("$to/stager" version 2>/dev/null | cut -d' ' -f1,2) || before=''
    case $before in
    'stager '*) ;;
    *) fail "$to/stager is not stager; remove it, or choose another directory with --to DIR" ;;
    esac
  fi

  tmp=$(mktemp -d) || fail 'cannot create a temporary directory; set TMPDIR to a directory that you can write to'
  new=$to/.stager-$$
  trap 'rm -rf -- "$tmp" "$new"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  fetch "$archive"
  got=$(sha256 "$tmp/$archive")
  [ -n "$got" ] || fail 'neither sha256sum nor shasum is installed, so the archive cannot be verified; install one'
  [ "$got" = "$sum" ] ||
    fail "$archive has the wrong checksum ($got, want $sum), so nothing was installed; download it again"
  tar -xzf "$tmp/$archive" -C "$tmp" stager || fail "cannot unpack $archive in $tmp; set TMPDIR to a directory with 100 MB of space"

  { mkdir -p -- "$to" && cp -- "$tmp/stager" "$new" && chmod 755 "$new"; } 2>/dev/null ||
    fail "cannot write to $to; check its permissions and free space, or choose another directory with --to DIR"
  "$new" version >/dev/null || fail "the binary does not run in $to; choose a directory that allows programs with --to DIR"
  mv -f -- "$new" "$to/stager" || fail "cannot replace $to/stager; check the permissions of $to"

  printf 'installed stager %s as %s%s\n' "$version" "$to/stager" "${before:+, in place of $before}"
  links=''
  link kubectl-stager
  link kubectl_complete-stager
  printf 'to remove it: rm %s%s\n' "$to/stager" "$links"
  case $(command -v stager || true) in
  "$to/stager") ;;
  '') printf 'to find it by name: export PATH="%s:$PATH"\n' "$to" ;;
  *) printf 'the name stager finds %s first; to find this one: export PATH="%s:$PATH"\n' "$(command -v stager)" "$to" ;;
  esac
}

main "$@"
