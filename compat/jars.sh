# Sourced by what needs jars from Maven: brings those of compat/NAME/pom.xml into $MAGNETAR_COMPAT_HOME/NAME, once, and
# anew after the file has changed.
#   . jars.sh; libs="$(jars NAME)"
jars() {
  local here home libs sum
  here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
  libs="$home/$1"
  sum="$(sha256sum < "$here/$1/pom.xml")"
  if [ "$(cat "$libs/.complete" 2>/dev/null)" != "$sum" ]; then
    rm -rf "$libs"
    mvn -q -B -f "$here/$1/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DoutputDirectory="$libs" -DincludeScope=runtime >&2 || return
    echo "$sum" > "$libs/.complete"
  fi
  echo "$libs"
}
