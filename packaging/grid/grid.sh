#!/usr/bin/env bash
# A real Hadoop grid on this machine, listening on 127.0.0.1 only: HDFS (NameNode, DataNode) and YARN (ResourceManager with
# the CapacityScheduler, NodeManagers nm1 and nm2; nm2 carries the node label "gpu" and advertises two yarn.io/gpu).
#
#   grid.sh start | stop | status | clean | env | jars | logs APPLICATION | run MAIN-CLASS ARGS…
#
# start    is safe to repeat, keeps data and labels, and stops what it started if it fails
# clean    stops and removes everything but the jars
# env      prints what a client exports: eval "$(packaging/grid/grid.sh env)"
# jars     fetches Hadoop's jars, if they are not there
# logs     prints the log of every container of an application
# run      runs a Hadoop client, e.g. org.apache.hadoop.fs.FsShell -ls /
#
# Environment: GRID_HOME=working folder (default .cache/grid of the checkout)  GRID_WAIT=seconds for each daemon (default 120)
#              GRID_EXCLUSIVE=false: a clean grid gets a non-exclusive label
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
GRID_HOME=$(realpath -m "${GRID_HOME:-$HERE/../../.cache/grid}")
CONF=$GRID_HOME/conf LIB=$GRID_HOME/lib PIDS=$GRID_HOME/pids LOGS=$GRID_HOME/log
WAIT_S=${GRID_WAIT:-120}
DAEMONS="namenode datanode resourcemanager nm1 nm2"
# The YARN daemons end at start on Java 17 without --add-opens; one collector thread each keeps five JVMs small.
JAVA_FLAGS=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-opens=java.base/java.lang=ALL-UNNAMED)

die() { echo "grid: $*" >&2; exit 1; }

use_java() { JAVA_HOME=$("$HERE/../java.sh") && export JAVA_HOME; }

client() { "$JAVA_HOME/bin/java" "${JAVA_FLAGS[@]}" -cp "$CONF:$LIB/*" "$@"; }

# The jars, once: 172 of them, 89 MB. Another pom.xml fetches them anew.
fetch_jars() {
  if cmp -s "$HERE/pom.xml" "$LIB/.pom.xml"; then return; fi
  command -v mvn > /dev/null || die "no mvn on PATH: install Maven (apt install maven)"
  rm -rf "$LIB" && mkdir -p "$LIB"
  mvn -q -B -f "$HERE/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$LIB"
  cp "$HERE/pom.xml" "$LIB/.pom.xml"
}

# The templates with @GRID@ and @USER@ filled in. HDFS's daemons look for the webapps folders; the jars have no HDFS web pages.
render() {
  local file
  mkdir -p "$CONF"/webapps/{hdfs,datanode} "$GRID_HOME/conf-gpu" "$PIDS" "$LOGS" "$GRID_HOME/tmp"
  for file in "$HERE"/conf/* "$HERE"/conf-gpu/*; do
    sed -e "s|@GRID@|$GRID_HOME|g" -e "s|@USER@|$(id -un)|g" "$file" > "$GRID_HOME/${file#"$HERE/"}"
  done
}

alive() { [ -s "$PIDS/$1" ] && kill -0 "$(cat "$PIDS/$1")" 2> /dev/null; }

launch() { # NAME CLASS-PATH-IN-FRONT JVM-ARGS… MAIN-CLASS
  local name=$1 front=$2
  shift 2
  if alive "$name"; then return; fi
  (cd "$GRID_HOME" && exec setsid "$JAVA_HOME/bin/java" "${JAVA_FLAGS[@]}" -cp "$front$CONF:$LIB/*" "$@") \
    > "$LOGS/$name.log" 2>&1 < /dev/null &
  echo $! > "$PIDS/$name"
}

nodemanager() { # NAME PORT CLASS-PATH-IN-FRONT
  launch "$1" "$3" -Xmx256m -Dnm.name="$1" -Dnm.port="$2" -Dnm.localizer.port=$(($2 - 1)) -Dnm.webapp.port=$(($2 + 1)) \
    org.apache.hadoop.yarn.server.nodemanager.NodeManager
}

failed() { # NAME WHAT: ends with the daemon's own last error
  die "$2; $LOGS/$1.log: $(grep -E ' (ERROR|FATAL) |Exception' "$LOGS/$1.log" | tail -n 1 || true)"
}

until_ok() { # WHAT DAEMON COMMAND…
  local what=$1 name=$2 end=$((SECONDS + WAIT_S))
  shift 2
  until "$@" > /dev/null 2>&1; do
    alive "$name" || failed "$name" "$name ended"
    [ $SECONDS -lt $end ] || failed "$name" "no $what within $WAIT_S s"
    sleep 0.2
  done
}

get() { curl -sf -m 5 --noproxy '*' "http://127.0.0.1:$1"; }
live_datanode() { get '19870/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState' | grep '"NumLiveDataNodes" : 1'; }
out_of_safe_mode() { get '19870/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo' | grep '"Safemode" : ""'; }
scheduler_up() { get 18088/ws/v1/cluster/info | grep '"state":"STARTED"'; }
nodes_running() { [ "$(get 18088/ws/v1/cluster/nodes | grep -o '"state":"RUNNING"' | wc -l)" = 2 ]; }
labelled() { get 18088/ws/v1/cluster/nodes | grep '"nodeLabels":\["gpu"\]'; }

# "spare" is a label that no node carries. The store keeps labels across restarts.
set_labels() {
  local admin=org.apache.hadoop.yarn.client.cli.RMAdminCLI
  client $admin -addToClusterNodeLabels "gpu(exclusive=${GRID_EXCLUSIVE:-true}),spare" > "$LOGS/labels.log" 2>&1
  client $admin -replaceLabelsOnNode "localhost:18051=gpu" >> "$LOGS/labels.log" 2>&1
}

start() {
  trap stop EXIT
  fetch_jars
  render
  [ -d "$GRID_HOME/nn/current" ] || client org.apache.hadoop.hdfs.server.namenode.NameNode -format -nonInteractive \
    > "$LOGS/format.log" 2>&1 || die "HDFS cannot be formatted; see $LOGS/format.log"
  launch namenode "" -Xmx256m org.apache.hadoop.hdfs.server.namenode.NameNode
  launch resourcemanager "" -Xmx384m org.apache.hadoop.yarn.server.resourcemanager.ResourceManager
  launch datanode "" -Xmx256m org.apache.hadoop.hdfs.server.datanode.DataNode
  nodemanager nm1 18041 ""
  nodemanager nm2 18051 "$GRID_HOME/conf-gpu:"
  until_ok "live DataNode" namenode live_datanode
  until_ok "end of safe mode" namenode out_of_safe_mode
  until_ok "ResourceManager" resourcemanager scheduler_up
  until_ok "two NodeManagers" resourcemanager nodes_running
  labelled > /dev/null || set_labels
  until_ok "node label" resourcemanager labelled
  trap - EXIT
  status
}

# NodeManagers go first: without a ResourceManager they try for 20 s. Their containers end within 3 s, then they would wait 10 s.
stop() {
  end_within 6 nm2 nm1
  end_within 15 resourcemanager datanode namenode
}

# A daemon that has ended meanwhile (two stops at once) is no error.
send() { if alive "$2"; then kill -s "$1" "$(cat "$PIDS/$2")" 2> /dev/null || true; fi; }

end_within() { # SECONDS NAME…
  local name end=$((SECONDS + $1))
  shift
  for name; do send TERM "$name"; done
  for name; do
    while alive "$name" && [ $SECONDS -lt $end ]; do sleep 0.1; done
    send KILL "$name"
    rm -f "$PIDS/$name"
  done
}

status() {
  local name
  for name in $DAEMONS; do
    if alive "$name"; then echo "$name pid $(cat "$PIDS/$name")"; else echo "$name down"; fi
  done
}

logs() { # APPLICATION
  local file
  for file in "$GRID_HOME"/nm?/logs/"$1"/*/*; do
    if [ -s "$file" ]; then printf '\n=== %s\n' "${file#"$GRID_HOME/"}" && tail -n 200 "$file"; fi
  done
}

env() {
  printf 'export HADOOP_CONF_DIR=%q JAVA_HOME=%q SPARK_LOCAL_IP=127.0.0.1\n' "$CONF" "$JAVA_HOME"
}

clean() { stop && rm -rf "$GRID_HOME"/{nn,dn,nm1,nm2,node-labels,tmp,log,pids,conf,conf-gpu}; }

use_java
case ${1:-} in
  start | stop | status | clean | env) "$1" ;;
  jars) fetch_jars ;;
  logs) logs "${2:?an application id}" ;;
  run) shift && client "$@" ;;
  *) die "usage: grid.sh start | stop | status | clean | env | jars | logs APPLICATION | run MAIN-CLASS ARGS…" ;;
esac
