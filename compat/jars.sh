# Sourced by what needs jars from Maven: brings those of compat/NAME/pom.xml into a folder of $MAGNETAR_COMPAT_HOME, once.
# Each version of the file has a folder of its own: trees that differ in it do not take each other's jars away.
#   . jars.sh; libs="$(jars NAME)"
jars() {
  local here home libs sum
  here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
  sum="$(sha256sum < "$here/$1/pom.xml")"
  libs="$home/$1-${sum:0:12}"
  if [ ! -e "$libs/.complete" ]; then
    mvn -q -B -f "$here/$1/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DoutputDirectory="$libs" -DincludeScope=runtime >&2 || return
    touch "$libs/.complete"
  fi
  echo "$libs"
}
