-- Nobody needs it any more: lists ask the memory who is in a cluster.
DROP INDEX agents_cluster;
